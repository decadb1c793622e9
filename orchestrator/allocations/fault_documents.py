"""Fault reports as clients see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.allocations.store.faults import FaultReport
from orchestrator.times import rfc3339, wait_document


def fault_document(report: FaultReport) -> JsonObject:
    """The JSON of a fault report."""
    return {
        "report_id": str(report.id),
        "tenant_id": str(report.tenant_id),
        "allocation_id": str(report.allocation_id),
        "node_id": str(report.node_id),
        "slots": report.slots,
        "symptom": report.symptom,
        "evidence": report.evidence,
        "details": report.details,
        "reported_at": rfc3339(report.reported_at),
        "reported_by": report.reported_by,
        "closed_at": rfc3339(report.closed_at),
        "replacement_id": None if report.replacement_id is None else str(report.replacement_id),
        "replacement_outcome": report.replacement_outcome,
        "waits": wait_document(report.waits_for, report.waits_since, report.waits_until),
    }
