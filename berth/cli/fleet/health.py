"""`berth node health`: how the hardware of a node is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, cell, print_aligned, show_list, show_one
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import BurnIn


def summary(burn_in: BurnIn) -> str:
    """A burn-in in one line: its outcome or what it waits for, its slots, and why it did not pass."""
    waits = burn_in.waits.for_ if burn_in.waits is not None else "?"
    why = f": {burn_in.failure}" if burn_in.failure else ""
    return f"{burn_in.outcome or f'open, waits for the {waits}'} (slots {', '.join(map(str, burn_in.slots))}){why}"


SHOWN: list[Column] = [
    ("node", lambda h: h.node_id), ("reported at", lambda h: h.reported_at), ("faults", lambda h: len(h.faults)),
    ("slots with faults", lambda h: sorted({slot for fault in h.faults for slot in fault.slots}) or None),
    ("last failure", lambda h: h.failure), ("next", lambda h: h.next_at),
    ("waits for", lambda h: None if h.waits is None else h.waits.for_),
    ("last burn-in", lambda h: None if h.burn_in is None else summary(h.burn_in)),
]  # fmt: skip
LISTED: list[Column] = [
    ("id", lambda r: r.id), ("reported at", lambda r: r.reported_at), ("faults", lambda r: len(r.faults)),
    ("causes", lambda r: ", ".join(sorted({fault.cause for fault in r.faults})) or None),
]  # fmt: skip
PARTS = {
    "gpus": (
        "address",
        "temperature_celsius",
        "ecc_uncorrected",
        "remapped_uncorrected",
        "nvlinks_up",
        "throttle_reasons",
    ),
    "memory": ("name", "corrected", "uncorrected"),
    "disks": ("name", "source", "passed", "state", "media_errors", "percentage_used", "temperature_celsius"),
    "nics": ("name", "carrier", "carrier_losses", "receive_errors", "transmit_errors"),
    "plugins": ("name", "verdict", "evidence", "failure"),
    "gaps": ("subject", "reason"),
}


def show_health(
    session: Session,
    node: Name,
    history: Annotated[bool, typer.Option("--history", help="list the reports that are kept, newest first")] = False,
) -> None:
    """Show how the hardware of a node is by its last health probe, and what of it is a fault."""
    with session.client() as client:
        node_id = client.get_node(node).id
        if history:
            show_list(session, client.iterate_health_reports(node_id), LISTED, empty="no reports")
            return
        found = client.get_node_health(node_id)
    show_one(session, found, SHOWN)
    if session.json:
        return
    for part, columns in PARTS.items():
        _print_part(session, part, (found.report or {}).get(part), columns)
    if found.faults:
        rows: list[tuple[list[str], str | None]] = [(["fault", "of", "found", "limit", "slots"], "bold")]
        for one in found.faults:
            rows.append(([cell(v) for v in (one.cause, one.subject, one.found, one.limit, one.slots)], "red"))
        print_aligned(session, rows)


def _print_part(session: Session, part: str, items: list[JsonObject] | None, columns: tuple[str, ...]) -> None:
    if not items:
        return
    rows: list[tuple[list[str], str | None]] = [([f"{part}:", *(name.replace("_", " ") for name in columns)], "bold")]
    rows += [(["", *(cell(item.get(name)) for name in columns)], None) for item in items]
    print_aligned(session, rows)
