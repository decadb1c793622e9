"""Prints the log from the API's feed, used where no NATS is known: one event per line, in order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from berth.cli.commands.event_lines import TYPE_PREFIX, line
from berth.cli.endings import Refused
from berth.cli.session import Session

if TYPE_CHECKING:
    from berth.client import Event

Chosen = Callable[["Event"], bool]


def print_feed(session: Session, chosen: Chosen, from_version: int, follow: bool) -> None:
    """Print the selected events from a version on. Raises what the client raises."""
    with session.client() as client:
        until = None if follow else client.get_log_version().version
        for event in client.events(from_version - 1, until=until):
            if chosen(event):
                show(session, event)


def print_event(session: Session, version: int) -> None:
    """Print the event of this version. Raises `Refused` if this key may not read it, or if it does not exist yet."""
    with session.client() as client:
        if version <= client.get_log_version().version:
            for event in client.events(version - 1, until=version):
                return show(session, event)
    raise Refused(f"there is no event of version {version} that this key may read", code="not_found")


def show(session: Session, event: Event) -> None:
    """One event: a line, or its members."""
    if session.json:
        typer.echo(json.dumps(dataclasses.asdict(event), separators=(",", ":"), default=str))
        return
    fields = {
        "time": event.occurred_at.isoformat(),
        "type": f"{TYPE_PREFIX}{event.event_type}",
        "subject": event.subject,
        "data": event.data,
    }
    typer.echo(line(event.version, fields))
