"""Health of nodes as operators see it: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from typing import Any

from orchestrator.nodes.store.probes import NodeHealth, StoredReport
from orchestrator.times import rfc3339


def health_document(known: NodeHealth) -> dict[str, Any]:
    """The JSON of a node's health."""
    waits = None
    if known.waits_for is not None:
        waits = {"for": known.waits_for, "since": rfc3339(known.waits_since), "until": rfc3339(known.waits_until)}
    return {
        "node_id": str(known.node_id),
        "report": known.report,
        "reported_at": rfc3339(known.reported_at),
        "faults": known.faults,
        "accepted": known.accepted,
        "failure": known.failure,
        "next_at": rfc3339(known.next_at),
        "waits": waits,
    }


def report_document(stored: StoredReport) -> dict[str, Any]:
    """The JSON of a report of the history."""
    return {
        "id": str(stored.id),
        "node_id": str(stored.node_id),
        "reported_at": rfc3339(stored.reported_at),
        "report": stored.report,
        "faults": stored.faults,
    }
