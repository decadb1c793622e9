"""Faults that tenants report, and the refusals of a report."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.errors import Overloaded, Refused
from berth.client.models import Answer, Waits


class FaultReport(Answer):
    """A fault that a tenant reported. `closed_at`: its units were released into quarantine; `waits`: it is being replaced."""

    report_id: UUID
    tenant_id: UUID
    allocation_id: UUID
    node_id: UUID
    slots: list[int]
    symptom: str
    evidence: str
    details: dict[str, str]
    reported_at: datetime
    reported_by: str
    closed_at: datetime | None = None
    replacement_id: UUID | None = None
    replacement_outcome: str | None = None
    waits: Waits | None = None


class FaultReportsOpen(Refused):
    """As many faults of the allocation are reported as it may have open; they close at its release."""

    codes = ("fault_reports_open",)


class ReplacementInProgress(Refused):
    """The allocation is being replaced already."""

    codes = ("replacement_in_progress",)


class TooManyFaultReports(Overloaded):
    """The tenant has reported as many faults within 24 hours as the deployment allows."""

    codes = ("too_many_fault_reports",)
