"""Fault reports: what a tenant sends of a faulty allocation, and what it and operators read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from berth.process.bounded_models import at_most
from orchestrator.allocations.states import ReplacementOutcome, Symptom
from orchestrator.http.documents import Waits
from orchestrator.http.fields import UNSHOWN, LabelKey, LabelValue, Request, describe_map
from orchestrator.http.paging import PageQuery
from orchestrator.http.tenant_scope import TenantQuery
from orchestrator.http.types.numbers import Count

EVIDENCE_LENGTH_MAX = 16_000
DETAILS_MAX = 32

Evidence = Annotated[str, Field(pattern=rf"^[^\x00-\x08\x0b-\x1f{UNSHOWN}]+$", max_length=EVIDENCE_LENGTH_MAX)]
"""Text with line feeds and tabs, and no other control characters."""
Details = Annotated[
    dict[LabelKey, LabelValue], Field(max_length=DETAILS_MAX, json_schema_extra=describe_map), at_most(DETAILS_MAX)
]
"""Facts by name, for example `xid` and `gpu_uuid`."""


class ReportFault(Request):
    """What is wrong with the units of an allocation. `replace`: place a new allocation, which then takes over."""

    symptom: Annotated[Symptom, Field(strict=False)]
    evidence: Evidence
    details: Details = Field(default_factory=dict)
    replace: bool = False


class FaultReport(BaseModel):
    """A fault that a tenant reported."""

    report_id: UUID
    tenant_id: UUID
    allocation_id: UUID
    node_id: UUID
    slots: list[Count]
    symptom: Symptom
    evidence: str
    details: dict[str, str]
    reported_at: datetime
    reported_by: str
    closed_at: datetime | None = Field(description="when the units were released into quarantine; null: not yet")
    replacement_id: UUID | None
    replacement_outcome: ReplacementOutcome | None
    waits: Waits | None = Field(description="the replacement is in progress")


class FaultReportQuery(PageQuery):
    """Which ones; with `every`, also those whose units were released."""

    every: bool = False


class OwnFaultReportQuery(FaultReportQuery, TenantQuery):
    """Those of one tenant."""
