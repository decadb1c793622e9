"""Orphans as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.store.orphans import Orphan
from orchestrator.times import rfc3339, wait_document

NEXT_STEP = "Inspect the node, then berth node destroy-orphan, or berth node adopt if it is to stay."


def orphan_document(orphan: Orphan) -> JsonObject:
    """The JSON of an orphan."""
    failure = None
    if orphan.failure_code is not None:
        failure = {"code": orphan.failure_code, "detail": orphan.failure_detail, "next_step": NEXT_STEP}
    return {
        "id": str(orphan.id),
        "node_id": str(orphan.node_id),
        "allocation_id": str(orphan.allocation_id),
        "slots": orphan.slots,
        "fence": orphan.fence,
        "state": orphan.state,
        "first_seen_at": rfc3339(orphan.first_seen_at),
        "last_seen_at": rfc3339(orphan.last_seen_at),
        "decided_by": orphan.decided_by,
        "decided_at": rfc3339(orphan.decided_at),
        "reason": orphan.reason,
        "adopted_for": None if orphan.adopted_for is None else str(orphan.adopted_for),
        "attempts": orphan.attempts,
        "failure": failure,
        "destroyed_at": rfc3339(orphan.destroyed_at),
        "waits": wait_document(orphan.waits_for, orphan.waits_since, orphan.waits_until),
        "row_version": orphan.row_version,
    }
