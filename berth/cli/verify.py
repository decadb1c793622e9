"""`berth verify`: checks the promises on a live database and says which are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from berth.cli.endings import FAILED, UNREACHABLE, Refused
from berth.cli.session import Session

if TYPE_CHECKING:
    from berth.verification import Verdict


def verify(session: Session) -> None:
    """Check the promises P1, P2, P3, P6 and P8 on the database; exit code 1 if one is broken. Only reads."""
    verdicts = collect(session.database_url(), session.nats_url())
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
                session.console.print("    and more", markup=False)
    broken = [verdict.promise for verdict in verdicts if not verdict.kept]
    if broken and session.json:
        raise typer.Exit(FAILED)
    if broken:
        raise Refused(f"violated: {', '.join(broken)}", code="violated")


def collect(database_url: str, nats_url: str | None) -> list[Verdict]:
    """All verdicts; the stream is compared where NATS is known."""
    # psycopg and nats-py, for this command alone: start-up stays light for all others.
    from berth.verification import run_checks
    from berth.verification.stream import StreamUnreachable, check_stream

    verdicts = run_checks(database_url)
    if nats_url is not None:
        try:
            verdicts.append(check_stream(database_url, nats_url))
        except StreamUnreachable as error:
            raise Refused(str(error), code="nats_unreachable", exit_code=UNREACHABLE) from error
    return verdicts


def verdict_line(verdict: Verdict) -> str:
    """One verdict for a person."""
    word = "kept    " if verdict.kept else "VIOLATED"
    return f"{verdict.promise:<10} {word} {verdict.title} ({verdict.checked} checked, {verdict.seconds:.2f} s)"


def as_data(verdict: Verdict) -> dict[str, Any]:
    """One verdict for a program."""
    return {
        "promise": verdict.promise, "title": verdict.title, "kept": verdict.kept, "checked": verdict.checked,
        "violations": verdict.violations, "more": verdict.more, "seconds": round(verdict.seconds, 3),
    }  # fmt: skip
