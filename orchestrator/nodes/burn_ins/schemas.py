"""Burn-ins as operators request and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from node_agent.wire.burn_in import SLOTS_MAX, BurnInReport
from orchestrator.http.documents import Waits
from orchestrator.http.fields import WHOLE, Request
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.burn_ins.rules import BurnInOutcome


class RequestBurnIn(Request):
    """What is tested: one slot, or without `slot` every slot of the node that is in quarantine without an allocation."""

    slot: Annotated[int, Field(ge=0, le=SLOTS_MAX - 1), WHOLE] | None = None


class BurnIn(BaseModel):
    """A test of slots in quarantine. `shared`: allocations were on other slots of the node, so the bounds were smaller."""

    id: UUID
    node_id: UUID
    slots: list[Count]
    shared: bool | None = Field(description="null: its task was not issued yet")
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = Field(description="it proves nothing about a fault that was found later")
    ended_at: datetime | None
    outcome: BurnInOutcome | None = Field(description="null: it is open")
    failure: str | None = Field(description="why it did not pass")
    report: BurnInReport | None
    waits: Waits | None
