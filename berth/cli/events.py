"""`berth events tail`: follows the log on NATS, where an event's stream sequence is its version."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from berth.cli import dead_letters
from berth.cli.endings import UNREACHABLE, Refused
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Events of the log.")
app.add_typer(dead_letters.app, name="dead-letters")


@command(app, "tail")
def tail(
    session: Session,
    from_version: Annotated[int, typer.Option("--from", min=1, help="first version to show")] = 1,
    type_: Annotated[str | None, typer.Option("--type", help="only this type; `provisioning.>` for all below")] = None,
    tenant: Annotated[str | None, typer.Option(help="only this tenant's (id or name), or `operator`")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="keep waiting, or end at the newest")] = True,
) -> None:
    """Show events in their order, one per line; with --output json, CloudEvents."""
    url = session.nats_url()
    if url is None:
        raise Refused(
            f"no NATS is known (looked in {session.state_dir}): set BERTH_NATS_URL or name a stack's --state-dir",
            code="no_nats",
            exit_code=UNREACHABLE,
        )
    if tenant is not None and tenant != "operator":
        tenant = str(_tenant_id(session, tenant))
    subject = f"berth.events.{tenant or '*'}.{type_ or '>'}"
    # nats-py, for this command alone: start-up stays light for all others.
    from berth.cli.event_stream import print_events

    print_events(session, url, subject, from_version, follow)


def _tenant_id(session: Session, tenant: str) -> UUID | None:
    """The id without asking anybody, or the API's answer to a name."""
    try:
        return UUID(tenant)
    except ValueError:
        with session.client() as client:
            return session.tenant_id(client, tenant)
