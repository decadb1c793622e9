"""Versions, the log's consumers, dead letters and retention policies as the API accepts and returns them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from berth.process.json_objects import JsonObject
from orchestrator.http.fields import WHOLE, Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.log.version_parameters import VERSION_MAX

VERSION_BOUND: Final[JsonObject] = {"maximum": 2**63 - 1024}
"""OpenAPI numbers are doubles; this is the largest one below 2^63."""
LogVersion = Annotated[int, Field(ge=0, le=VERSION_MAX, json_schema_extra=VERSION_BOUND), WHOLE]


class LogHead(BaseModel):
    """The head of the log."""

    version: BigCount = Field(description="At least as new as every write that was acknowledged before the request")
    leader_id: str = Field(
        description="Which PostgreSQL answers: its system identifier and timeline, and the log's epoch"
    )


class LogConsumer(BaseModel):
    """A consumer that stores its log offset in PostgreSQL."""

    consumer: str
    version: BigCount = Field(
        description="Its offset: everything up to it is processed; later versions are kept for it"
    )
    updated_at: datetime = Field(description="When it reached that version")


class ForgetConsumer(Request):
    """Why nothing need be kept for the consumer, for the audit record."""

    reason: Sentence


class DeadLetterState(StrEnum):
    """The state of a dead letter: `dead` awaits a decision."""

    DEAD = "dead"
    RETRIED = "retried"
    DISCARDED = "discarded"


class DeadLetter(BaseModel):
    """An event that a consumer gave up on, why, and how it was settled."""

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
    """The filter of a list of dead letters."""

    state: DeadLetterState | None = None
    consumer: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None


class DiscardDeadLetter(Request):
    """Why the event need not be handled, for the audit record."""

    reason: Sentence


class PutRetentionPolicy(Request):
    """The versions to keep."""

    prevent_truncate: LogVersion = Field(description="This version of the log and higher ones are kept")


class RetentionPolicy(BaseModel):
    """A retention policy."""

    policy_id: str
    prevent_truncate: BigCount = Field(description="The version as it was set")
    kept_from: BigCount = Field(
        description="The lowest version that it keeps: a tenant's policy keeps a bounded number of versions"
    )
    created_at: datetime
    updated_at: datetime
