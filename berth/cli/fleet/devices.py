"""`berth alloc devices`: the virtual devices of an allocation's guest."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, cell, print_aligned, show_one
from berth.cli.session import Session

SHOWN: list[Column] = [
    ("allocation", lambda d: d.allocation_id), ("state", lambda d: d.status), ("read", lambda d: d.read_at),
    ("task", lambda d: d.task_id), ("devices", lambda d: "unknown" if d.devices is None else len(d.devices)),
    ("reason", lambda d: d.reason),
]  # fmt: skip
DEVICE = ("name", "model", "address")


def show_devices(session: Session, allocation_id: Annotated[UUID, typer.Argument(help="the allocation's id")]) -> None:
    """Show the virtual devices of an allocation's guest, as its node read them at its last start (admin keys only)."""
    with session.client() as client:
        found = client.get_allocation_devices(allocation_id)
    show_one(session, found, SHOWN)
    if found.devices and not session.json:
        rows: list[tuple[list[str], str | None]] = [(list(DEVICE), "bold")]
        rows += [([cell(getattr(device, name)) for name in DEVICE], None) for device in found.devices]
        print_aligned(session, rows)
