"""Orphans of nodes, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from uuid import UUID

from berth.client.calls.call import Call, read_page, write
from berth.client.models import Orphan, Page

NODES = "/api/v1/admin/nodes"


def list_orphans(
    node_id: UUID, *, every: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Orphan]]:
    """What a node holds that nothing explains; with `every`, also what was destroyed. Raises `NotFound`."""
    wanted = "true" if every else None
    return read_page(f"{NODES}/{node_id}/orphans", Orphan, every=wanted, limit=limit, cursor=cursor)


def adopt_orphan(
    node_id: UUID, orphan_id: UUID, *, reason: str, allocation_id: UUID | None = None,
    idempotency_key: str | None = None,
) -> Call[Orphan]:  # fmt: skip
    """Keep it on the node, with or without an allocation of this node. Raises `NotFound`, `InvalidState`."""
    path = f"{NODES}/{node_id}/orphans/{orphan_id}/adopt"
    body = {"reason": reason, "allocation_id": None if allocation_id is None else str(allocation_id)}
    return write("POST", path, Orphan, body, idempotency_key)


def destroy_orphan(node_id: UUID, orphan_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[Orphan]:
    """Have the node remove it and prove that it is gone. Raises `NotFound`, `InvalidState`."""
    return write("POST", f"{NODES}/{node_id}/orphans/{orphan_id}/destroy", Orphan, {"reason": reason}, idempotency_key)
