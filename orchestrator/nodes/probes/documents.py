"""Health of nodes as operators see it: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.burn_ins.documents import burn_in_document
from orchestrator.nodes.store.burn_ins import BurnIn
from orchestrator.nodes.store.probes import NodeHealth, StoredReport
from orchestrator.times import rfc3339, wait_document


def health_document(known: NodeHealth, burn_in: BurnIn | None) -> JsonObject:
    """The JSON of a node's health, with its last burn-in."""
    return {
        "node_id": str(known.node_id),
        "report": known.report,
        "reported_at": rfc3339(known.reported_at),
        "faults": known.faults,
        "accepted": known.accepted,
        "failure": known.failure,
        "next_at": rfc3339(known.next_at),
        "waits": wait_document(known.waits_for, known.waits_since, known.waits_until),
        "burn_in": None if burn_in is None else burn_in_document(burn_in),
    }


def report_document(stored: StoredReport) -> JsonObject:
    """The JSON of a report of the history."""
    return {
        "id": str(stored.id),
        "node_id": str(stored.node_id),
        "reported_at": rfc3339(stored.reported_at),
        "report": stored.report,
        "faults": stored.faults,
    }
