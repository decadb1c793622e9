"""`berth node topology` and `approve`: what a node is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, cell, print_aligned, show_one
from berth.cli.session import Session

SHOWN: list[Column] = [
    ("node", lambda t: t.node_id), ("found", lambda t: t.found_digest), ("found at", lambda t: t.found_at),
    ("approved", lambda t: t.approved_digest), ("approved at", lambda t: t.approved_at),
    ("approved by", lambda t: t.approved_by), ("slots out of service", lambda t: t.drifted_slots or None),
    ("since", lambda t: t.drifted_since), ("last failure", lambda t: t.failure), ("next", lambda t: t.next_at),
    ("waits for", lambda t: None if t.waits is None else t.waits.for_),
]  # fmt: skip
GPU = ("address", "model", "serial", "numa_node", "iommu_group", "driver", "nvlinks_up", "mig_enabled", "lost")


def show_topology(session: Session, node: Name) -> None:
    """Show what discovery found of a node, what is approved, and what differs."""
    with session.client() as client:
        found = client.get_node_topology(client.get_node(node).id)
    show_one(session, found, SHOWN)
    if session.json:
        return
    if gpus := (found.found or {}).get("gpus"):
        rows: list[tuple[list[str], str | None]] = [([name.replace("_", " ") for name in GPU], "bold")]
        rows += [([cell(gpu.get(name)) for name in GPU], None) for gpu in gpus]
        print_aligned(session, rows)
    if found.differences:
        rows = [(["difference", "of", "approved", "found", "slots"], "bold")]
        for one in found.differences:
            rows.append(([cell(v) for v in (one.cause, one.subject, one.approved, one.found, one.slots)], "red"))
        print_aligned(session, rows)


def approve(
    session: Session,
    node: Name,
    digest: Annotated[str, typer.Option(help="digest of the topology found last, as `berth node topology` shows it")],
) -> None:
    """Approve the topology that was found last; slots that differed serve again."""
    with session.client() as client:
        show_one(session, client.approve_node(client.get_node(node).id, digest=digest), SHOWN)
