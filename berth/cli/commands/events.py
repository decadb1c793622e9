"""`berth events`: follow the log, show one event, rebuild the stream on NATS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.commands import dead_letters
from berth.cli.endings import UNREACHABLE, USAGE, Refused
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import Event

app = typer.Typer(no_args_is_help=True, help="Events of the log.")
app.add_typer(dead_letters.app, name="dead-letters")


@command(app, "tail")
def tail(
    session: Session,
    from_version: Annotated[int, typer.Option("--from", min=1, help="first version to show")] = 1,
    type_: Annotated[
        str | None, typer.Option("--type", help="only this type; `provisioning.>` for a whole family")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="only events of this tenant (id or name), or `operator`")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="wait for new events, or end at the newest")
    ] = True,
) -> None:
    """Print events in order, one per line, from NATS or else from the API's feed; --output json prints CloudEvents."""
    if type_ is not None:
        _require_known(type_)
    if tenant is not None and tenant != "operator":
        tenant = str(_tenant_id(session, tenant))
    if session.nats_url() is None and session.settings.api_url is not None:
        from berth.cli.commands.event_feed import print_feed

        print_feed(session, lambda event: _is_chosen(event, type_, tenant), from_version, follow)
        return
    url = _nats_url(session)
    subject = f"berth.events.{tenant or '*'}.{type_ or '>'}"
    # nats-py, for this command alone: start-up stays light for all others.
    from berth.cli.commands.event_stream import print_events

    print_events(session, url, subject, from_version, follow)


@command(app, "show")
def show(session: Session, version: Annotated[int, typer.Argument(min=1)]) -> None:
    """Show the event with this version."""
    from berth.cli.commands.event_feed import print_event

    print_event(session, version)


@command(app, "rebuild")
def rebuild(
    session: Session,
    from_version: Annotated[
        int | None, typer.Option("--from", min=1, help="first version to hold; default: the oldest the log keeps")
    ] = None,
    accept_timeline: Annotated[
        bool,
        typer.Option("--accept-timeline", help="let this Postgres write the log from now on, even if it lost versions"),
    ] = False,
    anew: Annotated[bool, typer.Option("--anew", help="rebuild the stream even if it is correct")] = False,
    highest_version: Annotated[
        int,
        typer.Option(
            "--highest-version", min=0, max=2**53, help="highest version that any consumer is known to have read"
        ),
    ] = 0,
) -> None:
    """Rebuild or complete the stream on NATS from the log in Postgres. Relays may keep running; safe to repeat."""
    # psycopg, nats-py and the relay, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.rebuilding import rebuild_stream
    from outbox_relay.rebuilding import Order

    rebuild_stream(session, _nats_url(session), Order(from_version, accept_timeline, anew, highest_version))


def _require_known(wanted: str) -> None:
    """Raise `Refused` unless the type is known, or is a NATS pattern (`*`: one part, `>`: all that follow) of a known one."""
    # The client package loads httpx: start-up stays light for all other commands.
    from berth.client.feed.event_types import EVENT_TYPES

    if not any(_covers(wanted.split("."), known.split(".")) for known in EVENT_TYPES):
        raise Refused(
            f"{wanted!r} is not an event type; the types are {', '.join(EVENT_TYPES)}; `provisioning.>` is a whole family",
            code="usage",
            exit_code=USAGE,
        )


def _covers(wanted: Sequence[str], known: Sequence[str]) -> bool:
    for place, part in enumerate(wanted):
        if part == ">":
            return place == len(wanted) - 1 and place < len(known)
        if place == len(known) or part not in ("*", known[place]):
            return False
    return len(wanted) == len(known)


def _is_chosen(event: Event, type_: str | None, tenant: str | None) -> bool:
    whose = "operator" if event.tenant_id is None else str(event.tenant_id)
    return tenant in (None, whose) and (type_ is None or _covers(type_.split("."), event.event_type.split(".")))


def _nats_url(session: Session) -> str:
    url = session.nats_url()
    if url is None:
        raise Refused(
            f"no NATS is known (looked in {session.state_dir}): set BERTH_NATS_URL or name a stack's --state-dir",
            code="no_nats",
            exit_code=UNREACHABLE,
        )
    return url


def _tenant_id(session: Session, tenant: str) -> UUID | None:
    """The id itself, without a request, or the id that the API returns for a name."""
    try:
        return UUID(tenant)
    except ValueError:
        with session.client() as client:
            return session.tenant_id(client, tenant)
