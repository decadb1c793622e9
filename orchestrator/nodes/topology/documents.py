"""Topologies as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.store.topologies import NodeTopology
from orchestrator.times import rfc3339, wait_document


def topology_document(known: NodeTopology) -> JsonObject:
    """The JSON of a node's topology."""
    return {
        "node_id": str(known.node_id),
        "found": known.found,
        "found_digest": known.found_digest,
        "found_at": rfc3339(known.found_at),
        "approved": known.approved,
        "approved_digest": known.approved_digest,
        "approved_at": rfc3339(known.approved_at),
        "approved_by": known.approved_by,
        "differences": known.differences,
        "drifted_slots": known.drifted_slots,
        "drifted_since": rfc3339(known.drifted_since),
        "failure": known.failure,
        "next_at": rfc3339(known.next_at),
        "waits": wait_document(known.waits_for, known.waits_since, known.waits_until),
    }
