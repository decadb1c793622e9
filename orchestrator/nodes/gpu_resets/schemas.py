"""Resets of GPUs as operators see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, Field

from node_agent.wire.burn_in import SLOTS_MAX
from node_agent.wire.gpu_reset import GpuResetReport
from orchestrator.http.documents import Waits
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.gpu_resets.rules import GpuResetOutcome

SlotIndex = Annotated[int, Path(ge=0, le=SLOTS_MAX - 1, description="index of the slot within the node")]


class GpuReset(BaseModel):
    """A reset of the GPU of a slot, and of those that are reset together with it."""

    id: UUID
    node_id: UUID
    slots: list[Count]
    gpus: list[str] = Field(description="PCI addresses, in the order of `slots`")
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    ended_at: datetime | None
    outcome: GpuResetOutcome | None = Field(description="null: it is open")
    failure: str | None = Field(description="why it is not proven that every GPU was reset: a code, and what was found")
    report: GpuResetReport | None
    waits: Waits | None
