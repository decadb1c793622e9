"""`berth restore`: what must happen after PostgreSQL was restored to an earlier moment."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.cli.deployment.restore.gate import Restore

app = typer.Typer(
    no_args_is_help=True, help="What follows a restore of PostgreSQL to an earlier moment, before anything is served."
)


@command(app, "begin")
def begin(session: Session) -> None:
    """Keep every process from serving until `berth restore run` has finished. The first command after a restore."""
    # psycopg, for this command alone: start-up stays light for all others.
    import psycopg

    from berth.cli.deployment.restore import gate

    url = session.database_url()
    with psycopg.connect(url, autocommit=True, application_name="berth restore") as connection:
        restore, is_new = gate.begin(connection)
    if session.json:
        session.console.print_json(data={**as_data(restore), "is_new": is_new})
        return
    word = "is open" if is_new else "was open already"
    session.console.print(
        f"restore {restore.epoch} {word}: nothing is served; go on with `berth restore run`",
        markup=False,
        soft_wrap=True,
    )


@command(app, "run")
def run(session: Session) -> None:
    """Finish the restore that is open, or begin one. It prints each step; after any interruption, repeat it."""
    # As above.
    from berth.cli.deployment.restore.running import run_restore

    steps: list[dict[str, str]] = []

    def show(step: str, said: str) -> None:
        steps.append({"step": step, "said": said})
        if not session.json:
            session.console.print(f"{step:<8} {said}", markup=False, soft_wrap=True)

    restore = run_restore(session.database_url(), show)
    if session.json:
        session.console.print_json(data={**as_data(restore), "steps": steps})


@command(app, "show")
def show(session: Session) -> None:
    """Show the newest restore of this database, and whether it is open."""
    # As above.
    import psycopg

    from berth.cli.deployment.restore import gate

    with psycopg.connect(session.database_url(), autocommit=True) as connection:
        restore = gate.read_restore(connection)
    if session.json:
        session.console.print_json(data=None if restore is None else as_data(restore))
        return
    if restore is None:
        session.console.print("this database was never restored")
        return
    state = "open: nothing is served" if restore.closed_at is None else f"closed at {restore.closed_at.isoformat()}"
    session.console.print(
        f"restore {restore.epoch}, begun at {restore.begun_at.isoformat()}, is {state}; the restored log ended at version"
        f" {restore.head_version}",
        markup=False,
        soft_wrap=True,
    )


@command(app, "nodes")
def nodes(session: Session) -> None:
    """List the nodes whose slots stay out of service, because their inventory has not arrived since the restore."""
    # As above.
    import psycopg

    from berth.cli.deployment.restore import gate

    with psycopg.connect(session.database_url(), autocommit=True) as connection:
        awaited = gate.awaited_nodes(connection)
    if session.json:
        session.console.print_json(
            data=[{name: _plain(value) for name, value in vars(node).items()} for node in awaited]
        )
        return
    for node in awaited:
        seen = "never seen" if node.last_seen_at is None else f"last seen at {node.last_seen_at.isoformat()}"
        word = "online" if node.online else "silent"
        session.console.print(f"{node.name}  {node.id}  {word}, {seen}", markup=False, soft_wrap=True)
    if not awaited:
        session.console.print("no node is awaited")


def as_data(restore: Restore) -> dict[str, Any]:
    """A restore for programs."""
    return {name: _plain(value) for name, value in vars(restore).items()}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value) if isinstance(value, UUID) else value
