"""Notifications as the API accepts and returns them (docs/reference/notifications.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.http.types.numbers import BigCount
from orchestrator.log.version_parameters import VERSION_MAX

SUBSCRIPTION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
CHOICES_MAX: Final = 50
Choices = Annotated[list[str], Field(max_length=CHOICES_MAX)]


class SocketQuery(BaseModel):
    """The query parameters of a socket."""

    model_config = ConfigDict(extra="forbid")

    subscription: str | None = Field(None, pattern=SUBSCRIPTION_PATTERN)
    after: int | None = Field(None, ge=0, le=VERSION_MAX)
    types: Choices = Field(default_factory=list)
    subject: Choices = Field(default_factory=list)


class NotificationSubscription(BaseModel):
    """A named subscription."""

    name: str
    version: BigCount = Field(description="Its offset: everything up to it is acknowledged")
    kept_until: datetime = Field(description="Until when its offset is kept if nothing more is acknowledged")
    created_at: datetime
    updated_at: datetime
