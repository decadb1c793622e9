"""Burn-ins, and what has the same shape, as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from typing import Any

from berth.process.json_objects import JsonObject
from orchestrator.nodes.store.burn_ins import BurnIn
from orchestrator.nodes.store.gpu_resets import GpuReset
from orchestrator.times import rfc3339, wait_document


def burn_in_document(found: BurnIn) -> JsonObject:
    """The JSON of a burn-in."""
    return slot_work_document(found, shared=found.shared)


def slot_work_document(found: BurnIn | GpuReset, **own: Any) -> JsonObject:
    """The JSON of work on slots that are out of service, with the members that its kind has alone."""
    return {
        "id": str(found.id),
        "node_id": str(found.node_id),
        "slots": found.slots,
        **own,
        "requested_at": rfc3339(found.requested_at),
        "requested_by": found.requested_by,
        "issued_at": rfc3339(found.issued_at),
        "ended_at": rfc3339(found.ended_at),
        "outcome": found.outcome,
        "failure": found.failure,
        "report": found.report,
        "waits": wait_document(found.waits_for, found.waits_since, found.waits_until),
    }
