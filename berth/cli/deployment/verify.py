"""`berth verify`: checks the promises on a live database and says which are kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import typer

from berth.cli.endings import FAILED, Refused, ending_of
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.cli.settings import Settings
    from orchestrator.verification import Verdict

CANNOT_ASK = 2
"""As of `diff` and `grep`: 1 is a finding, so whatever keeps from looking must be another code."""

RESCUE_SECONDS = 110.0
"""After a sweeper's grace: its rounds, its batches and one step of a workflow, generously."""


def verify(session: Session) -> None:
    """Check the promises on the database and the stream. Only reads. Exit code 1: violated; 2: cannot ask."""
    try:
        verdicts = collect(session.database_url(), session.nats_url(), session.settings)
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


def collect(database_url: str, nats_url: str | None, settings: Settings) -> list[Verdict]:
    """All verdicts; the stream is compared where NATS is known, while the database is checked.

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
        verdicts = run_checks(database_url, bounds)
        if compared is None:
            return verdicts
        try:
            return [*verdicts, compared.result()]
        except StreamUnreachable as error:
            raise Refused(str(error), code="nats_unreachable", exit_code=CANNOT_ASK) from error


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
