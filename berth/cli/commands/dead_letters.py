"""`berth events dead-letters`: events that a consumer of the log gave up on."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import DeadLetter

app = typer.Typer(no_args_is_help=True, help="Events that a consumer of the log gave up on (admin keys only).")


def _state(letter: DeadLetter) -> str:
    return letter.state if letter.retry_asked_at is None else f"{letter.state}, retry asked for"


LISTED: list[Column] = [
    ("id", lambda d: d.id), ("version", lambda d: d.version), ("event type", lambda d: d.event_type),
    ("reason", lambda d: d.reason), ("tries", lambda d: d.tries), ("state", _state),
    ("last", lambda d: d.last_at),
]  # fmt: skip
SHOWN: list[Column] = [
    ("id", lambda d: d.id), ("consumer", lambda d: d.consumer), ("version", lambda d: d.version),
    ("event", lambda d: d.event_id), ("event type", lambda d: d.event_type), ("reason", lambda d: d.reason),
    ("detail", lambda d: d.detail), ("tries", lambda d: d.tries), ("state", _state),
    ("first", lambda d: d.first_at), ("last", lambda d: d.last_at), ("settled", lambda d: d.settled_at),
    ("message", lambda d: d.excerpt),
]  # fmt: skip

LetterId = Annotated[UUID, typer.Argument(help="the dead letter's id")]


class State(StrEnum):
    """Whether the dead letter awaits a decision."""

    DEAD = "dead"
    RETRIED = "retried"
    DISCARDED = "discarded"


@command(app, "list")
def list_dead_letters(
    session: Session,
    state: Annotated[State | None, typer.Option(help="only these")] = None,
    consumer: Annotated[str | None, typer.Option(help="only of this consumer, for example berth-worker")] = None,
) -> None:
    """List dead letters, oldest first."""
    with session.client() as client:
        found = client.iterate_dead_letters(state=None if state is None else state.value, consumer=consumer)
        show_list(session, found, LISTED, empty="no dead letters")


@command(app, "show")
def show_dead_letter(session: Session, dead_letter_id: LetterId) -> None:
    """Show one dead letter with its reason and the start of its message."""
    with session.client() as client:
        show_one(session, client.get_dead_letter(dead_letter_id), SHOWN)


@command(app, "retry")
def retry_dead_letter(session: Session, dead_letter_id: LetterId) -> None:
    """Have the consumer handle the event again, as the log stores it."""
    with session.client() as client:
        show_one(session, client.retry_dead_letter(dead_letter_id), SHOWN)


@command(app, "discard")
def discard_dead_letter(
    session: Session,
    dead_letter_id: LetterId,
    reason: Annotated[str, typer.Option(help="why the event need not be handled; stored in the audit log")],
) -> None:
    """Discard the event: no consumer handles it. Recorded in the audit log."""
    with session.client() as client:
        show_one(session, client.discard_dead_letter(dead_letter_id, reason=reason), SHOWN)
