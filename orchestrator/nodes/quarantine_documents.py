"""Quarantines of slots as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.store.quarantines import Quarantine
from orchestrator.times import rfc3339


def quarantine_document(quarantine: Quarantine) -> JsonObject:
    """The JSON of a quarantine."""
    return {
        "id": str(quarantine.id),
        "node_id": str(quarantine.node_id),
        "slot_index": quarantine.slot_index,
        "source": quarantine.source,
        "reason": quarantine.reason,
        "evidence": quarantine.evidence,
        "quarantined_at": rfc3339(quarantine.quarantined_at),
        "quarantined_by": quarantine.quarantined_by,
        "returned_at": rfc3339(quarantine.returned_at),
        "returned_by": quarantine.returned_by,
        "note": quarantine.note,
        "fault_report_id": None if quarantine.fault_report_id is None else str(quarantine.fault_report_id),
        "last_fault_at": rfc3339(quarantine.last_fault_at),
        "burn_in_id": None if quarantine.burn_in_id is None else str(quarantine.burn_in_id),
    }
