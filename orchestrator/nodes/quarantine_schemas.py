"""Quarantines of slots: slots that an operator took out of service."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, Field

from orchestrator.catalogue.shapes import SLOTS_MAX
from orchestrator.http.fields import UNSHOWN, Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.store.quarantines import EVIDENCE_LENGTH_MAX

SlotIndex = Annotated[int, Path(ge=0, le=SLOTS_MAX - 1, description="index of the slot within the node")]


Evidence = Annotated[str, Field(pattern=rf"^[^\x00-\x08\x0b-\x1f{UNSHOWN}]+$", max_length=EVIDENCE_LENGTH_MAX)]
"""Text with line feeds and tabs, and no other control characters."""


class QuarantineSlot(Request):
    """Why the slot is taken out of service, and what shows it: text of a probe or a log, kept as it is."""

    reason: Sentence
    evidence: Evidence | None = None


class ReturnSlot(Request):
    """What was done: on the record. `without_burn_in`: although no burn-in has passed since the fault; `note` says why."""

    note: Sentence
    without_burn_in: bool = False


class Quarantine(BaseModel):
    """A time during which a slot was out of service by an operator's decision, a probe's report, a fault report
    or what was found at a release."""

    id: UUID
    node_id: UUID
    slot_index: Count
    source: Literal["operator", "probe", "fault_report", "release", "attestation"]
    reason: str
    evidence: str | None
    quarantined_at: datetime
    quarantined_by: str
    returned_at: datetime | None = Field(description="null: it is still in quarantine")
    returned_by: str | None
    note: str | None
    fault_report_id: UUID | None = Field(description="the report after which the slot was released")
    last_fault_at: datetime | None = Field(
        description="when a health probe last found another fault of the slot meanwhile"
    )
    burn_in_id: UUID | None = Field(
        description="the burn-in after which the slot returned; null: it returned without one"
    )


class QuarantineQuery(PageQuery):
    """Which ones; with `every`, also those that have ended."""

    every: bool = False
