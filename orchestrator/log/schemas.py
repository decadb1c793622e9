"""Consumers of the log as operators see them (docs/retention.md)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.http.fields import Request, Sentence
from orchestrator.http.numbers import BigCount, Count
from orchestrator.http.paging import PageQuery
from orchestrator.keyvalue.schemas import LogVersion


class LogConsumer(BaseModel):
    """Who keeps its position in the log in Postgres."""

    consumer: str
    version: BigCount = Field(description="Everything up to it is done; what follows is kept for it")
    updated_at: datetime = Field(description="When it came that far")


class ForgetConsumer(Request):
    """Why nothing need be kept for it; for the record."""

    reason: Sentence


class DeadLetterState(StrEnum):
    """Whether somebody has still to decide."""

    DEAD = "dead"
    RETRIED = "retried"
    DISCARDED = "discarded"


class DeadLetter(BaseModel):
    """Which event, why it was given up, and what became of it."""

    id: UUID
    consumer: str
    version: BigCount
    event_id: UUID | None
    event_type: str | None
    reason: str
    detail: str
    excerpt: str
    tries: Count
    state: DeadLetterState
    first_at: datetime
    last_at: datetime
    retry_asked_at: datetime | None
    settled_at: datetime | None
    row_version: BigCount


class DeadLetterQuery(PageQuery):
    """Which ones."""

    state: DeadLetterState | None = None
    consumer: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None


class DiscardDeadLetter(Request):
    """Why nobody need handle it; for the record."""

    reason: Sentence


class PutRetentionPolicy(Request):
    """What is to be kept."""

    prevent_truncate: LogVersion = Field(description="This version of the log and higher ones are kept")


class RetentionPolicy(BaseModel):
    """What is kept."""

    policy_id: str
    prevent_truncate: BigCount = Field(description="As it was put")
    kept_from: BigCount = Field(
        description="From which version on it keeps the log: a tenant's policy holds a bounded number of versions"
    )
    created_at: datetime
    updated_at: datetime
