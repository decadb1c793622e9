"""`berth archive run`, `verify` and `show`: the operator's commands of the archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.deployment.archive.destinations import find_destination
from berth.cli.endings import USAGE, Refused
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.cli.deployment.archive.running import Retention

app = typer.Typer(
    no_args_is_help=True,
    help="Archive ended allocations, ended webhook deliveries and old rows of the audit before they are deleted.",
)
ArchiveArgument = Annotated[str, typer.Argument(help="directory of the archive, or s3://bucket/prefix")]


@command(app, "run")
def run(
    session: Session,
    to: Annotated[str, typer.Option(help="directory of the archive, or s3://bucket/prefix")],
    days: Annotated[
        int | None, typer.Option(min=1, help="archive what ended that many days ago [env: BERTH_RETENTION_DAYS]")
    ] = None,
    audit_days: Annotated[
        int | None,
        typer.Option(min=0, help="archive rows of the audit that old; 0: none [env: BERTH_AUDIT_RETENTION_DAYS]"),
    ] = None,
    delivery_days: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="archive webhook deliveries that ended that many days ago; 0: end that [env: BERTH_DELIVERY_RETENTION_DAYS]",
        ),
    ] = None,
) -> None:
    """Archive and delete allocations, deliveries and rows of the audit past their retention. Safe to repeat and to interrupt."""
    # psycopg, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.archive.running import run_archive

    retention = _retention(session, days, audit_days, delivery_days)
    with _named(), session.errors.status("archiving") as status:
        done = run_archive(
            session.database_url(),
            find_destination(session, to),
            retention,
            show=lambda so_far: status.update(
                f"{so_far.deleted} allocations, {so_far.deliveries} deliveries and {so_far.audit_rows} rows of the audit in "
                f"{so_far.segments} segments"
            ),
        )
    if session.json:
        session.console.print_json(data=asdict(done))
        return
    session.console.print(
        f"{done.deleted} allocations, {done.deliveries} deliveries and {done.audit_rows} rows of the audit archived and deleted, "
        f"in {done.segments} segments; {done.skipped} allocations and {done.deliveries_skipped} deliveries left for a later run; "
        f"{done.resumed} segments of an interrupted run finished",
        markup=False,
        soft_wrap=True,
    )
    if done.audit_held_at is not None:
        session.console.print(
            f"row {done.audit_held_at} of the audit stays, with all behind it: it proves the cleanup of an allocation that is not"
            " archived yet",
            markup=False,
            soft_wrap=True,
        )
    if done.audit_unsent_from is not None:
        session.console.print(
            f"rows of the audit from {done.audit_unsent_from} on stay: a stream has not sent them; `berth audit-stream list`"
            " shows which one, and why",
            markup=False,
            soft_wrap=True,
        )


def _retention(session: Session, days: int | None, audit_days: int | None, delivery_days: int | None) -> Retention:
    """What the options or else the settings say. Raises `Refused` if nothing would leave, or the audit before allocations."""
    # As above.
    from berth.cli.deployment.archive.audit_rows import DAYS_MIN
    from berth.cli.deployment.archive.running import Retention

    kept = session.settings.retention_days if days is None else days
    if kept == 0:
        raise Refused(
            "BERTH_RETENTION_DAYS is 0, which keeps everything; nothing was archived", code="retention_unlimited"
        )
    audit = session.settings.audit_retention_days if audit_days is None else audit_days
    if 0 < audit <= kept or 0 < audit < DAYS_MIN:
        raise Refused(
            f"BERTH_AUDIT_RETENTION_DAYS is {audit}; it must be at least {DAYS_MIN} and more than the {kept} days of allocations,"
            " or 0, which keeps the audit for ever; nothing was archived",
            code="audit_retention_too_short",
        )
    deliveries = session.settings.delivery_retention_days if delivery_days is None else delivery_days
    return Retention(kept, audit, deliveries)


@command(app, "verify")
def verify(session: Session, archive: ArchiveArgument) -> None:
    """Check the chain of manifests, every checksum, and the chain of the audit. Only reads. Exit code 1: it is damaged."""
    # Only the archive's own modules load psycopg; start-up stays light for all others.
    from berth.cli.deployment.archive.chains import judge

    with _named():
        judged = judge(find_destination(session, archive))
    if session.json:
        session.console.print_json(data=asdict(judged))
        if judged.violations:
            raise typer.Exit(1)
        return
    session.console.print(
        f"{judged.manifests} manifests, {judged.allocations} allocations, {judged.repeated} of them in several segments, "
        f"{judged.deliveries} deliveries, {judged.deliveries_repeated} of them in several segments, "
        f"{judged.audit_rows} rows of the audit",
        markup=False,
        soft_wrap=True,
    )
    if judged.audit_head is not None:
        session.console.print(f"head of the archived audit {judged.audit_head}", markup=False, soft_wrap=True)
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
    allocation: Annotated[UUID | None, typer.Option(help="id of the allocation")] = None,
    audit_row: Annotated[int | None, typer.Option(min=1, help="sequence of the row of the audit")] = None,
    delivery: Annotated[
        str | None, typer.Option(metavar="WEBHOOK/NUMBER", help="webhook and number of the delivery")
    ] = None,
) -> None:
    """Print everything that the archive contains of an allocation, a row of the audit or a delivery, as JSON."""
    # As above.
    from berth.cli.deployment.archive.chains import find_allocation, find_audit_row, find_delivery

    if sum(option is not None for option in (allocation, audit_row, delivery)) != 1:
        raise Refused("give one of --allocation, --audit-row and --delivery", code="usage", exit_code=USAGE)
    with _named():
        destination = find_destination(session, archive)
        if allocation is not None:
            found, what = find_allocation(destination, str(allocation)), f"allocation {allocation}"
        elif audit_row is not None:
            found, what = find_audit_row(destination, audit_row), f"row {audit_row} of the audit"
        else:
            found, what = find_delivery(destination, _delivery_key(delivery or "")), f"delivery {delivery}"
    if found is None:
        raise Refused(f"the archive {archive} contains no {what}", code="not_found")
    session.console.print_json(data=found)


def _delivery_key(named: str) -> str:
    """The key of a delivery's line, from WEBHOOK/NUMBER. Raises `Refused`."""
    # As above.
    from berth.cli.deployment.archive.delivery_rows import Place

    webhook, _, number = named.partition("/")
    try:
        return Place(UUID(webhook), int(number)).key
    except ValueError:
        raise Refused(
            f"{named!r} names no delivery; give the webhook's id, a slash and the delivery's number",
            code="usage",
            exit_code=USAGE,
        ) from None


@contextmanager
def _named() -> Iterator[None]:
    """Turn a problem of the archive into the command's refusal."""
    # As above.
    from berth.cli.deployment.archive.problems import ArchiveProblem

    try:
        yield
    except ArchiveProblem as problem:
        raise Refused(str(problem), code=problem.code) from problem
