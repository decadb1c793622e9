"""Notifications as the API takes and shows them (docs/notifications.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.http.numbers import BigCount
from orchestrator.log.wanted_versions import VERSION_MAX

SUBSCRIPTION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
CHOICES_MAX: Final = 50
Choices = Annotated[list[str], Field(max_length=CHOICES_MAX)]


class Question(BaseModel):
    """What a socket is opened with."""

    model_config = ConfigDict(extra="forbid")

    subscription: str | None = Field(None, pattern=SUBSCRIPTION_PATTERN)
    after: int | None = Field(None, ge=0, le=VERSION_MAX)
    types: Choices = Field(default_factory=list)
    subject: Choices = Field(default_factory=list)


class NotificationSubscription(BaseModel):
    """A named subscription."""

    name: str
    version: BigCount = Field(description="Everything up to it is acknowledged")
    kept_until: datetime = Field(description="Until when its place is kept, if nothing is acknowledged any more")
    created_at: datetime
    updated_at: datetime
