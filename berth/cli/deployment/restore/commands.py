"""`berth restore`: what must happen after PostgreSQL was restored to an earlier moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.endings import UNREACHABLE, Refused
from berth.cli.session import Session, command
from berth.process.json_objects import JsonMapping, JsonObject

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


@command(app, "export")
def export(
    session: Session,
    directory: Annotated[Path, typer.Option("--to", help="where the files go; made if it is missing")] = Path(
        "lost-interval"
    ),
) -> None:
    """Export what the restored database has lost, from NATS, with what to do about it. Before the stream is rebuilt."""
    # As above, and nats-py.
    from berth.cli.deployment.restore.exporting import export_lost

    nats_url = session.nats_url()
    if nats_url is None:
        raise Refused(
            f"no NATS is known (looked in {session.state_dir}): set BERTH_NATS_URL or name a stack's --state-dir",
            code="no_nats",
            exit_code=UNREACHABLE,
        )
    manifest = asyncio.run(export_lost(session.database_url(), nats_url, directory))
    if session.json:
        session.console.print_json(data=manifest)
        return
    for line in report_lines(manifest, directory):
        session.console.print(line, markup=False, soft_wrap=True)


@command(app, "run")
def run(
    session: Session,
    without_export: Annotated[
        str | None,
        typer.Option(
            "--without-export", metavar="REASON", help="go on although NATS is lost too; the reason is recorded"
        ),
    ] = None,
    highest_version: Annotated[
        int,
        typer.Option(
            "--highest-version", min=0, max=2**53, help="highest version that any consumer is known to have read"
        ),
    ] = 0,
) -> None:
    """Finish the restore that is open, or begin one. It prints each step; after any interruption, repeat it."""
    # As above.
    from berth.cli.deployment.restore.running import run_restore

    steps: list[dict[str, str]] = []

    def show(step: str, said: str) -> None:
        steps.append({"step": step, "said": said})
        if not session.json:
            session.console.print(f"{step:<8} {said}", markup=False, soft_wrap=True)

    restore = run_restore(session.database_url(), show, without_export, highest_version)
    if session.json:
        session.console.print_json(data={**as_data(restore), "steps": steps})


@command(app, "show")
def show(session: Session) -> None:
    """Show the newest restore of this database, and whether it is open."""
    # As above.
    import psycopg

    from berth.cli.deployment.restore import gate
    from berth.cli.deployment.restore.lost_rows import Replays, read_replays

    with psycopg.connect(session.database_url(), autocommit=True) as connection:
        restore = gate.read_restore(connection)
        replays = Replays(0, 0) if restore is None else read_replays(connection, restore.epoch)
    if session.json:
        shown = (
            None
            if restore is None
            else {**as_data(restore), "replays_left": replays.left, "replays_done": replays.done}
        )
        session.console.print_json(data=shown)
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
    if restore.without_export is not None:
        exported = f"not exported: {restore.without_export}"
    elif restore.exported_at is None:
        exported = "not exported yet"
    else:
        exported = f"exported at {restore.exported_at.isoformat()}: {restore.export_events} events"
    session.console.print(
        f"the lost interval is {exported}; of its ends and revocations {replays.done} are replayed and {replays.left} are left",
        markup=False,
        soft_wrap=True,
    )


@command(app, "nodes")
def nodes(
    session: Session,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="NODE", help="its active allocation is still on its machine, which has no agent"
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--export", help="with --keep: where the lost interval was exported to")
    ] = Path("lost-interval"),
) -> None:
    """List the nodes whose slots stay out of service, because their inventory has not arrived since the restore."""
    # As above.
    import psycopg

    from berth.cli.deployment.restore import gate
    from berth.cli.deployment.restore.machines import keep_machine

    if keep is not None:
        with psycopg.connect(session.database_url(), autocommit=True) as connection:
            allocation = keep_machine(connection, keep, directory)
        if session.json:
            session.console.print_json(data={"node": keep, "allocation_id": str(allocation)})
        else:
            session.console.print(f"{keep} keeps allocation {allocation}, and serves", markup=False, soft_wrap=True)
        return
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
        on_it = ", ".join(node.allocations) or "no allocation"
        why = "" if node.waits_for == "inventory" else f"; no agent says what is on it: wipe or keep it ({on_it})"
        session.console.print(f"{node.name}  {node.id}  {word}, {seen}{why}", markup=False, soft_wrap=True)
    if not awaited:
        session.console.print("no node is awaited")


def as_data(restore: Restore) -> JsonObject:
    """A restore for programs."""
    return {name: _plain(value) for name, value in vars(restore).items()}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value) if isinstance(value, UUID) else value


def report_lines(manifest: JsonMapping, directory: Path) -> Iterator[str]:
    """The report for people: what is lost by tenant, and the next step of each kind."""
    yield (
        f"{manifest['events']} events of the lost interval are in {directory / 'events.ndjson'} (SHA-256 {manifest['sha256']});"
        f" {manifest['kept']} of them are in the restored database"
    )
    if manifest["missing"]:
        yield f"{manifest['missing']} versions of it are not in NATS any more: nothing is known of them"
    for tenant, found in sorted(manifest["tenants"].items()):
        for kind, count in sorted(found["lost"].items()):
            yield f"{tenant}  {kind}: {count}"
    for kind, step in sorted(manifest["next_steps"].items()):
        yield f"{kind}: {step}"
    yield f"{directory / 'report.ndjson'} has one line for each; go on with `berth events rebuild --accept-timeline`"
