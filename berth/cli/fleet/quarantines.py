"""`berth node quarantine`, `return`, `quarantines`: single slots that are out of service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

LISTED: list[Column] = [
    ("id", lambda q: q.id), ("slot", lambda q: q.slot_index),
    ("source", lambda q: q.source), ("reason", lambda q: q.reason),
    ("since", lambda q: q.quarantined_at), ("by", lambda q: q.quarantined_by), ("returned", lambda q: q.returned_at),
    ("note", lambda q: q.note),
]  # fmt: skip
SHOWN: list[Column] = [
    ("id", lambda q: q.id), ("node", lambda q: q.node_id), ("slot", lambda q: q.slot_index),
    ("source", lambda q: q.source), ("reason", lambda q: q.reason),
    ("evidence", lambda q: q.evidence), ("since", lambda q: q.quarantined_at), ("by", lambda q: q.quarantined_by),
    ("returned", lambda q: q.returned_at), ("returned by", lambda q: q.returned_by), ("note", lambda q: q.note),
    ("burn-in", lambda q: q.burn_in_id),
]  # fmt: skip

Slot = Annotated[int, typer.Argument(help="index of the slot within the node", min=0)]


def _printable(text: str) -> str:
    """The text with a replacement character for each control character, such as logs contain."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)


def quarantine(
    session: Session,
    node: Name,
    slot: Slot,
    reason: Annotated[str, typer.Option(help="the reason, shown with the slot and stored in the audit log")],
    evidence: Annotated[Path | None, typer.Option(help="file that shows the fault, kept with it", exists=True)] = None,
) -> None:
    """Take a slot out of service: nothing new is placed on it, an allocation on it stays until its release."""
    with session.client() as client:
        node_id = client.get_node(node).id
        shown = _printable(evidence.read_text(errors="replace")) if evidence else None
        show_one(session, client.quarantine_slot(node_id, slot, reason=reason, evidence=shown), SHOWN)


def return_slot(
    session: Session,
    node: Name,
    slot: Slot,
    note: Annotated[str, typer.Option(help="what was done, stored in the audit log")],
    without_burn_in: Annotated[
        bool, typer.Option("--without-burn-in", help="although none has passed since its fault; the note says why")
    ] = False,
) -> None:
    """Return a slot from quarantine into service; after a fault of the hardware a burn-in must have passed."""
    with session.client() as client:
        node_id = client.get_node(node).id
        returned = client.return_slot(node_id, slot, note=note, without_burn_in=without_burn_in or None)
        show_one(session, returned, SHOWN)


def list_quarantines(
    session: Session,
    node: Name,
    every: Annotated[bool, typer.Option("--all", help="include ended ones")] = False,
) -> None:
    """List a node's slots in quarantine."""
    with session.client() as client:
        found = client.iterate_quarantines(client.get_node(node).id, every=every)
        show_list(session, found, LISTED, empty="no quarantines")
