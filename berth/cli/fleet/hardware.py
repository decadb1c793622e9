"""`berth hardware`: GPUs and disks by serial number, their history and repairs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="GPUs and disks by serial number, their repairs (admin keys only).")

PLACES: list[Column] = [
    ("serial", lambda p: p.serial), ("kind", lambda p: p.kind), ("model", lambda p: p.model), ("node", lambda p: p.node_id),
    ("slots", lambda p: p.slots), ("since", lambda p: p.since), ("missing", lambda p: p.missing_since),
    ("contested", lambda p: p.contested_since),
]  # fmt: skip
HISTORY: list[Column] = [
    ("time", lambda e: e.happened_at), ("happened", lambda e: e.happened), ("node", lambda e: e.node_id),
    ("slots", lambda e: e.slots), ("detail", lambda e: e.detail), ("by", lambda e: e.actor),
    ("contested", lambda e: "yes" if e.contested else None), ("evidence", lambda e: e.evidence),
]  # fmt: skip
REPAIRS: list[Column] = [
    ("id", lambda r: r.id), ("serial", lambda r: r.serial), ("kind", lambda r: r.kind), ("reason", lambda r: r.reason),
    ("opened", lambda r: r.opened_at), ("by", lambda r: r.opened_by), ("closed", lambda r: r.closed_at),
    ("closed by", lambda r: r.closed_by), ("result", lambda r: r.result),
]  # fmt: skip
SHOWN: list[Column] = [
    ("serial", lambda h: h.serial), ("kind", lambda h: h.kind),
    ("contested", lambda h: "yes: several nodes report it" if h.contested else "no"),
    ("nodes", lambda h: ", ".join(f"{p.node_id} slots {p.slots}{' (missing)' if p.missing_since else ''}" for p in h.places)),
    ("open repair", lambda h: h.open_repair.id if h.open_repair else None),
    ("reason", lambda h: h.open_repair.reason if h.open_repair else None),
]  # fmt: skip


class Kind(StrEnum):
    """What a piece of hardware is."""

    GPU = "gpu"
    DISK = "disk"


Serial = Annotated[str, typer.Argument(help="serial number, as `berth hardware list` shows it")]


@command(app, "list")
def list_places(
    session: Session,
    node: Annotated[str | None, typer.Option(help="name of the node")] = None,
    kind: Annotated[Kind | None, typer.Option(help="only GPUs, or only disks")] = None,
    contested: Annotated[bool, typer.Option("--contested", help="only what several nodes report")] = False,
    missing: Annotated[bool, typer.Option("--missing", help="only what no node reports any more")] = False,
) -> None:
    """List GPUs and disks with their nodes, by serial number."""
    with session.client() as client:
        node_id = None if node is None else client.get_node(node).id
        found = client.iterate_hardware(
            node_id=node_id, kind=None if kind is None else kind.value, contested=contested, missing=missing
        )
        show_list(session, found, PLACES, empty="no hardware")


@command(app, "show")
def show(session: Session, serial: Serial) -> None:
    """Show where a GPU or disk is, and its open repair."""
    with session.client() as client:
        show_one(session, client.get_hardware(serial), SHOWN)


@command(app, "history")
def history(session: Session, serial: Serial) -> None:
    """List what happened to a GPU or disk, at every node that had it, newest first."""
    with session.client() as client:
        show_list(session, client.iterate_hardware_history(serial), HISTORY, empty="no history")


@command(app, "repair")
def repair(
    session: Session,
    serial: Serial,
    reason: Annotated[str, typer.Option(help="what is wrong, stored in the history and the audit log")],
) -> None:
    """Open a repair of a GPU or disk; its slot stays as it is."""
    with session.client() as client:
        show_one(session, client.open_repair(serial, reason=reason), REPAIRS)


@command(app, "close")
def close(
    session: Session,
    repair_id: Annotated[UUID, typer.Argument(metavar="REPAIR", help="the repair's id")],
    result: Annotated[str, typer.Option(help="what was done, stored in the history and the audit log")],
) -> None:
    """Close a repair with its result."""
    with session.client() as client:
        show_one(session, client.close_repair(repair_id, result=result), REPAIRS)


@command(app, "repairs")
def list_repairs(
    session: Session,
    serial: Annotated[str | None, typer.Option(help="only those of this serial number")] = None,
    every: Annotated[bool, typer.Option("--all", help="include closed ones")] = False,
) -> None:
    """List open repairs, oldest first."""
    with session.client() as client:
        show_list(session, client.iterate_repairs(serial=serial, every=every), REPAIRS, empty="no repairs")
