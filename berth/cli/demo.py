"""`berth demo`: a stack of its own, five acts, a table, a report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from berth.cli.endings import FAILED, INTERRUPTED, Refused
from berth.cli.session import Session
from berth.cli.up import View, stopping_on_signals
from berth.local.state import MARK, StateDirectory


def demo(
    session: Session,
    fresh: Annotated[bool, typer.Option("--fresh", help="delete the state directory's content first")] = False,
) -> None:
    """Show real allocations going through every component. Exit code 0 only if every act did what it claims.

    Starts its own stack with six nodes in --state-dir (default: var/demo) and stops it at the end.
    """
    # The stack and asyncssh, for this command alone: start-up stays light for all others.
    from berth.demo.play import REPORT, play, write_report
    from berth.local.fleet import DEMO_AGENTS
    from berth.local.stack import Stack, StackOptions

    directory = session.state_dir if session.state_dir != Path("var") else Path("var") / "demo"
    if (directory / MARK).exists() and not fresh:
        raise Refused(f"{directory} holds a stack's state; the demo starts from nothing: add --fresh")
    began = time.monotonic()

    def say(line: str) -> None:
        if not session.json:
            session.console.print(f"{time.monotonic() - began:6.1f} s  {line}", markup=False, soft_wrap=True)

    options = StackOptions(directory, agents=DEMO_AGENTS, fresh=fresh, wished_port=None)
    with stopping_on_signals():
        try:
            view = View(session, live=False)
            with Stack(options, view.report if not session.json else lambda _: None) as stack:
                acts = play(stack, say)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(INTERRUPTED) from interrupt
    report = write_report(StateDirectory(directory), acts, time.monotonic() - began)
    if session.json:
        typer.echo(json.dumps(report, indent=2))
    else:
        session.console.print(table(report))
        _print_failures(session, report)
        session.console.print(f"report: {directory / REPORT}", markup=False, soft_wrap=True)
    if not report["held"]:
        raise typer.Exit(FAILED)


def table(report: dict[str, Any]) -> Table:
    """The report for a person."""
    shown = Table(title=f"berth demo, {report['seconds']} s", title_justify="left")
    for title in ("act", "", "checks", "seconds", "create p50/p99 ms", "to active p50/p99 ms", "figures"):
        shown.add_column(title, overflow="fold")
    for act in report["acts"]:
        held = sum(1 for check in act["checks"] if check["held"])
        shown.add_row(
            act["act"], act["title"], f"{held} of {len(act['checks'])}", str(act["seconds"]), _pair(act["create_ms"]),
            _pair(act["post_to_active_ms"]), _figures(act), style=None if act["held"] else "red",
        )  # fmt: skip
    all_ = ("", "all", "held" if report["held"] else "FAILED", str(report["seconds"]))
    events = f"{report['events_published']} events published, overlaps {report['overlaps_found']}"
    shown.add_section()
    shown.add_row(*all_, _pair(report["create_ms"]), _pair(report["post_to_active_ms"]), events)
    return shown


def _pair(spread: dict[str, Any]) -> str:
    return f"{spread['p50']} / {spread['p99']}" if spread["count"] else "-"


def _figures(act: dict[str, Any]) -> str:
    shown = ("capacity", "placed", "refused", "overlaps", "jobs", "ends", "proof", "versions_contiguous")
    return ", ".join(f"{name} {act[name]}" for name in shown if name in act)


def _print_failures(session: Session, report: dict[str, Any]) -> None:
    for act in report["acts"]:
        for check in act["checks"]:
            if not check["held"]:
                session.errors.print(f"({act['act']}) did not hold: {check['claim']}", style="red", markup=False)
