"""`berth archive run`, `verify` and `show`: the operator's commands of the archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.cli.deployment.archive.directory import Destination

app = typer.Typer(no_args_is_help=True, help="Archive ended allocations before they are deleted.")
ArchiveArgument = Annotated[str, typer.Argument(help="directory of the archive")]


@command(app, "run")
def run(
    session: Session,
    to: Annotated[str, typer.Option(help="directory of the archive")],
    days: Annotated[
        int | None, typer.Option(min=1, help="archive what ended that many days ago [env: BERTH_RETENTION_DAYS]")
    ] = None,
) -> None:
    """Archive and delete allocations past their retention. Safe to repeat and to interrupt."""
    # psycopg, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.archive.running import run_archive

    kept_days = session.settings.retention_days if days is None else days
    if kept_days == 0:
        raise Refused(
            "BERTH_RETENTION_DAYS is 0, which keeps everything; nothing was archived", code="retention_unlimited"
        )
    with _named(), session.errors.status("archiving") as status:
        done = run_archive(
            session.database_url(),
            _destination(to),
            kept_days,
            show=lambda so_far: status.update(f"{so_far.deleted} allocations in {so_far.segments} segments"),
        )
    if session.json:
        session.console.print_json(data=asdict(done))
        return
    session.console.print(
        f"{done.deleted} allocations archived and deleted, in {done.segments} segments; {done.skipped} left for a later run; "
        f"{done.resumed} segments of an interrupted run finished",
        markup=False,
        soft_wrap=True,
    )


@command(app, "verify")
def verify(session: Session, archive: ArchiveArgument) -> None:
    """Check the chain of manifests and every checksum. Only reads. Exit code 1: the archive is damaged."""
    # Only the archive's own modules load psycopg; start-up stays light for all others.
    from berth.cli.deployment.archive.chains import judge

    with _named():
        judged = judge(_destination(archive))
    if session.json:
        session.console.print_json(data=asdict(judged))
        if judged.violations:
            raise typer.Exit(1)
        return
    session.console.print(
        f"{judged.manifests} manifests, {judged.allocations} allocations, {judged.repeated} of them in several segments",
        markup=False,
    )
    for name in judged.unsealed:
        session.console.print(
            f"{name} belongs to no manifest; an interrupted run left it", markup=False, soft_wrap=True
        )
    for violation in judged.violations:
        session.console.print(violation, style="red", markup=False, soft_wrap=True)
    if judged.violations:
        raise Refused(f"{len(judged.violations)} violations", code="archive_damaged")


@command(app, "show")
def show(
    session: Session,
    archive: ArchiveArgument,
    allocation: Annotated[UUID, typer.Option(help="id of the allocation")],
) -> None:
    """Print everything that the archive contains of an allocation, as JSON."""
    # As above.
    from berth.cli.deployment.archive.chains import find_allocation

    with _named():
        found = find_allocation(_destination(archive), str(allocation))
    if found is None:
        raise Refused(f"the archive {archive} contains no allocation {allocation}", code="not_found")
    session.console.print_json(data=found)


def _destination(name: str) -> Destination:
    # As above.
    from berth.cli.deployment.archive.directory import Directory

    if not name or "://" in name:
        raise Refused(f"{name or 'an empty name'} is no directory", code="usage", exit_code=USAGE)
    return Directory(Path(name))


@contextmanager
def _named() -> Iterator[None]:
    """Turn a problem of the archive into the command's refusal."""
    # As above.
    from berth.cli.deployment.archive.problems import ArchiveProblem

    try:
        yield
    except ArchiveProblem as problem:
        raise Refused(str(problem), code=problem.code) from problem
