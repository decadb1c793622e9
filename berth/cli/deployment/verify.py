"""`berth verify`: checks the promises on a live database and says which are kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.endings import FAILED, Refused, ending_of
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.cli.settings import Settings
    from orchestrator.verification import Bounds, Verdict

CANNOT_ASK = 2
"""As of `diff` and `grep`: 1 is a finding, so whatever keeps from looking must be another code."""

RESCUE_SECONDS = 110.0
"""After a sweeper's grace: its rounds, its batches and one step of a workflow, generously."""


def verify(
    session: Session,
    on_standby: Annotated[
        bool, typer.Option("--on-standby", help="read the standby of BERTH_READ_DATABASE_URL, not the primary")
    ] = False,
) -> None:
    """Check the promises on the database and the stream. Only reads. Exit code 1: violated; 2: cannot ask."""
    try:
        standby_url = _standby(session) if on_standby else None
        verdicts = collect(session.database_url(), session.nats_url(), session.settings, standby_url)
    except Exception as error:
        ending = ending_of(error)
        if ending is None:
            raise
        raise Refused(ending.detail, code=ending.code, exit_code=CANNOT_ASK) from error
    if session.json:
        session.console.print_json(
            data={"kept": all(v.kept for v in verdicts), "checks": [as_data(v) for v in verdicts]}
        )
    else:
        for verdict in verdicts:
            session.console.print(
                verdict_line(verdict), style=None if verdict.kept else "red", markup=False, soft_wrap=True
            )
            for violation in verdict.violations:
                session.console.print(f"    {violation}", markup=False, soft_wrap=True)
            if verdict.more:
                session.console.print(f"    and {verdict.more} more", markup=False)
    broken = [verdict.promise for verdict in verdicts if not verdict.kept]
    if broken and session.json:
        raise typer.Exit(FAILED)
    if broken:
        raise Refused(f"violated: {', '.join(broken)}", code="violated")


def _standby(session: Session) -> str:
    """The address of one standby, compared: it is the primary's, and not far behind. Raises `Refused`, `psycopg.Error`."""
    from berth.cli.deployment.standby.reading import compare_standby

    url = session.settings.read_database_url
    if url is None:
        raise Refused("no standby is known: set BERTH_READ_DATABASE_URL", code="no_standby", exit_code=CANNOT_ASK)
    compared = compare_standby(session.database_url(), url)
    if compared.unfit is not None:
        raise Refused(
            f"the standby says nothing about this database: {compared.unfit}; leave --on-standby out",
            code="standby_unfit",
            exit_code=CANNOT_ASK,
        )
    return compared.url


def collect(
    database_url: str, nats_url: str | None, settings: Settings, standby_url: str | None = None
) -> list[Verdict]:
    """All verdicts; the stream is compared where NATS is known, while the database is checked, or its standby if one is named.

    Raises `psycopg.Error` or `StreamUnreachable`.
    """
    # psycopg and nats-py, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.stream_check import StreamUnreachable, check_stream
    from orchestrator.verification import Bounds, run_checks

    bounds = Bounds(
        operation_retention_seconds=settings.operation_retention_seconds,
        overdue_seconds=settings.sweep_grace_seconds + RESCUE_SECONDS,
    )
    with ThreadPoolExecutor(max_workers=1) as beside:
        compared = None if nats_url is None else beside.submit(check_stream, database_url, nats_url)
        verdicts = run_checks(database_url, bounds) if standby_url is None else _run_checks_on(standby_url, bounds)
        if compared is None:
            return verdicts
        try:
            return [*verdicts, compared.result()]
        except StreamUnreachable as error:
            raise Refused(str(error), code="nats_unreachable", exit_code=CANNOT_ASK) from error


def _run_checks_on(standby_url: str, bounds: Bounds) -> list[Verdict]:
    import psycopg

    from orchestrator.verification import run_checks

    try:
        return run_checks(standby_url, bounds)
    except psycopg.errors.SerializationFailure as error:
        raise Refused(
            "the standby cancelled a check to replay what the primary has removed: set hot_standby_feedback on the standby,"
            " or leave --on-standby out",
            code="replay_conflict",
            exit_code=CANNOT_ASK,
        ) from error


def verdict_line(verdict: Verdict) -> str:
    """One verdict for a person."""
    word = "kept    " if verdict.kept else "VIOLATED"
    note = f"; {verdict.note}" if verdict.note else ""
    return f"{verdict.promise:<10} {word} {verdict.title} ({verdict.checked} checked, {verdict.seconds:.2f} s{note})"


def as_data(verdict: Verdict) -> JsonObject:
    """One verdict for a program."""
    return {
        "promise": verdict.promise, "title": verdict.title, "kept": verdict.kept, "checked": verdict.checked,
        "violations": verdict.violations, "more": verdict.more, "note": verdict.note,
        "seconds": round(verdict.seconds, 3),
    }  # fmt: skip
