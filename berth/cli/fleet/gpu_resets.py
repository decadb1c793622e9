"""`berth node gpu-reset`, `gpu-resets`: resets of GPUs whose slots are out of service."""

from __future__ import annotations

from berth.cli.commands.nodes import Name
from berth.cli.fleet.quarantines import Slot
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

SHOWN: list[Column] = [
    ("id", lambda r: r.id), ("node", lambda r: r.node_id), ("slots", lambda r: r.slots), ("gpus", lambda r: r.gpus),
    ("outcome", lambda r: r.outcome), ("failure", lambda r: r.failure), ("requested at", lambda r: r.requested_at),
    ("requested by", lambda r: r.requested_by), ("issued at", lambda r: r.issued_at), ("ended at", lambda r: r.ended_at),
    ("waits for", lambda r: None if r.waits is None else r.waits.for_),
    ("until", lambda r: None if r.waits is None else r.waits.until),
]  # fmt: skip
LISTED: list[Column] = [
    ("id", lambda r: r.id), ("slots", lambda r: r.slots), ("outcome", lambda r: r.outcome or "open"),
    ("requested at", lambda r: r.requested_at), ("by", lambda r: r.requested_by), ("ended at", lambda r: r.ended_at),
    ("failure", lambda r: r.failure),
]  # fmt: skip


def gpu_reset(session: Session, node: Name, slot: Slot) -> None:
    """Reset the GPU of a slot that is out of service, with those that NVLink connects to it."""
    with session.client() as client:
        show_one(session, client.request_gpu_reset(client.get_node(node).id, slot), SHOWN)


def list_gpu_resets(session: Session, node: Name) -> None:
    """List the resets of a node's GPUs that are kept, newest first."""
    with session.client() as client:
        show_list(session, client.iterate_gpu_resets(client.get_node(node).id), LISTED, empty="no GPU resets")
