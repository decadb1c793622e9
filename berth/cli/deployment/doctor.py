"""`berth doctor`: is everything that Berth needs here, reachable, and set as it must be? One line each."""

from __future__ import annotations

from dataclasses import asdict

import typer

from berth.cli.endings import FAILED, Refused
from berth.cli.session import Session


def doctor(session: Session) -> None:
    """Check this machine and the deployment; exit code 1 if something is bad. Only reads."""
    # The libraries of every server and the schema: start-up stays light for all other commands.
    from berth.cli.deployment.examination import examine

    findings = list(examine(session))
    if session.json:
        bad = any(finding.verdict == "bad" for finding in findings)
        session.console.print_json(data={"healthy": not bad, "findings": [asdict(f) for f in findings]})
        if bad:
            raise typer.Exit(FAILED)
        return
    styles = {"ok": "green", "warning": "yellow", "bad": "red", "skipped": "dim"}
    for finding in findings:
        line = f"{finding.verdict:<8} {finding.subject:<18} {finding.detail}"
        session.console.print(line, style=styles[finding.verdict], markup=False, soft_wrap=True)
    bad_subjects = [finding.subject for finding in findings if finding.verdict == "bad"]
    if bad_subjects:
        raise Refused(f"not healthy: {', '.join(bad_subjects)}", code="unhealthy")
