"""`berth node burn-in`, `burn-ins`: tests of slots in quarantine before they return."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

SHOWN: list[Column] = [
    ("id", lambda b: b.id), ("node", lambda b: b.node_id), ("slots", lambda b: b.slots), ("outcome", lambda b: b.outcome),
    ("failure", lambda b: b.failure), ("beside allocations", lambda b: b.shared), ("requested at", lambda b: b.requested_at),
    ("requested by", lambda b: b.requested_by), ("issued at", lambda b: b.issued_at), ("ended at", lambda b: b.ended_at),
    ("waits for", lambda b: None if b.waits is None else b.waits.for_),
    ("until", lambda b: None if b.waits is None else b.waits.until),
]  # fmt: skip
LISTED: list[Column] = [
    ("id", lambda b: b.id), ("slots", lambda b: b.slots), ("outcome", lambda b: b.outcome or "open"),
    ("requested at", lambda b: b.requested_at), ("by", lambda b: b.requested_by), ("ended at", lambda b: b.ended_at),
    ("failure", lambda b: b.failure),
]  # fmt: skip


def burn_in(
    session: Session,
    node: Name,
    slot: Annotated[
        int | None,
        typer.Option(min=0, help="index of one slot; default: every slot in quarantine without an allocation"),
    ] = None,
) -> None:
    """Test slots in quarantine before they return: memory, disk and processors of the node, DCGM and plugins."""
    with session.client() as client:
        show_one(session, client.request_burn_in(client.get_node(node).id, slot=slot), SHOWN)


def list_burn_ins(session: Session, node: Name) -> None:
    """List a node's burn-ins that are kept, newest first."""
    with session.client() as client:
        show_list(session, client.iterate_burn_ins(client.get_node(node).id), LISTED, empty="no burn-ins")
