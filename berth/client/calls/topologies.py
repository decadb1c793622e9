"""Topologies of nodes, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from uuid import UUID

from berth.client.calls.call import Call, read, write
from berth.client.topologies import NodeTopology

NODES = "/api/v1/admin/nodes"


def get_node_topology(node_id: UUID) -> Call[NodeTopology]:
    """What a node is made of: found last, approved, and what differs. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/topology", NodeTopology)


def approve_node(node_id: UUID, *, digest: str, idempotency_key: str | None = None) -> Call[NodeTopology]:
    """Approve the topology that was found last. Raises `NotFound`, `TopologyChanged`, `TopologyMisfit`."""
    return write("POST", f"{NODES}/{node_id}/approve", NodeTopology, {"digest": digest}, idempotency_key)
