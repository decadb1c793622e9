"""Drains in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.http.fields import Request, Sentence
from orchestrator.http.types.moments import Moment
from orchestrator.nodes.drains.rules import AtDeadline


class DrainNode(Request):
    """Until when a node is to be empty. Without a body: no deadline; of a draining node nothing changes then."""

    deadline: Moment | None = Field(None, description="within the next 366 days; tenants are notified of it")
    at_deadline: Annotated[AtDeadline, Field(strict=False)] = Field(
        AtDeadline.STAY,
        description="`stay`: allocations stay, and the drain is announced as overdue; `release`: they are released then too",
    )
    reason: Sentence | None = Field(None, description="shown to the tenants that are notified")


class RemainingClaim(BaseModel):
    """A claim on a draining node."""

    owner: str = Field(description="`allocations/<id>` or `reservations/<id>`")
    tenant_id: UUID
    state: str
    starts_at: datetime
    ends_at: datetime | None = Field(description="null: without an end")


class NodeDrain(BaseModel):
    """The drain of a node that is draining."""

    begun_at: datetime
    begun_by: str
    reason: str | None
    deadline: datetime | None
    at_deadline: AtDeadline
    overdue_at: datetime | None = Field(description="When it was announced that the deadline is over")
    drained_at: datetime | None = Field(description="When the last claim had ended")
    waits_for: Literal["claims"] | None
    waits_since: datetime | None
    waits_until: datetime | None
    remaining: list[RemainingClaim] = Field(description="what is still on the node, at most 100, by their start")
    remaining_count: int = Field(ge=0, le=2**31 - 1, description="how many claims are still on the node")
