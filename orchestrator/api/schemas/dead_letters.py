"""Events that a consumer of the log gave up on."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.api.paging import PageQuery
from orchestrator.api.schemas.fields import Request, Sentence


class DeadLetterState(StrEnum):
    """Whether somebody has still to decide."""

    DEAD = "dead"
    RETRIED = "retried"
    DISCARDED = "discarded"


class DeadLetter(BaseModel):
    """Which event, why it was given up, and what became of it."""

    id: UUID
    consumer: str
    version: int
    event_id: UUID | None
    event_type: str | None
    reason: str
    detail: str
    excerpt: str
    tries: int
    state: DeadLetterState
    first_at: datetime
    last_at: datetime
    retry_asked_at: datetime | None
    settled_at: datetime | None
    row_version: int


class DeadLetterQuery(PageQuery):
    """Which ones."""

    state: DeadLetterState | None = None
    consumer: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None


class DiscardDeadLetter(Request):
    """Why nobody need handle it; for the record."""

    reason: Sentence
