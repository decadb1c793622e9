"""`berth demo --deploy-medium`: the demo on emulated bare-metal machines, and its table of steps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from berth.cli.commands.up import View, stopping_on_signals
from berth.cli.endings import FAILED, INTERRUPTED
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.local.demo.act import Say
    from berth.local.demo.machines.play import MachineDemo

LEFT_OUT = "-"


def demo_of_machines(session: Session, directory: Path, demo: MachineDemo, say: Say, *, fresh: bool) -> None:
    """Play on a separate stack, then print the table. Exit code 0 only if every step of every machine was proven."""
    from berth.local.demo.machines.play import play_machines, write_machine_report
    from berth.local.machines.stack import MachineStack
    from berth.local.options import StackOptions
    from berth.local.state import StateDirectory

    began = time.monotonic()
    options = StackOptions(directory, fresh=fresh, wished_port=None)
    with stopping_on_signals():
        try:
            view = View(session, live=False)
            with MachineStack(options, demo.medium, view.report if not session.json else lambda _: None) as stack:
                steps = play_machines(stack, demo, say)
        except KeyboardInterrupt as interrupt:
            session.errors.print("interrupted: NOT proven; machines, BMCs and the stack were stopped", markup=False)
            raise typer.Exit(INTERRUPTED) from interrupt
    report = write_machine_report(StateDirectory(directory), steps, time.monotonic() - began)
    conclude(session, directory, report)


def conclude(session: Session, directory: Path, report: JsonObject) -> None:
    """Print the report. Raises `typer.Exit` unless everything was proven."""
    from berth.local.demo.play import REPORT

    if session.json:
        typer.echo(json.dumps(report, indent=2))
    else:
        session.console.print(machine_table(report))
        session.console.print(f"report: {directory / REPORT}", markup=False, soft_wrap=True)
        for failure in report["failures"]:
            session.errors.print(failure, style="red", markup=False, soft_wrap=True)
        session.console.print(verdict(report), markup=False, soft_wrap=True)
    if not report["held"]:
        raise typer.Exit(FAILED)


def machine_table(report: JsonObject) -> Table:
    """The steps with the seconds that each machine took; NO where a step was not proven, - where it did not run."""
    shown = Table(title=f"berth demo on machines, {report['seconds']} s; seconds of each step", title_justify="left")
    shown.add_column("step")
    for machine in report["machines"]:
        shown.add_column(machine["name"], justify="right")
    for steps in zip(*(machine["steps"] for machine in report["machines"]), strict=True):
        held = all(step["proven"] for step in steps)
        shown.add_row(steps[0]["title"], *map(_cell, steps), style=None if held else "red")
    kept = sum(check["held"] for check in report["checks"])
    shown.add_section()
    shown.add_row(
        f"berth verify: {kept} of {len(report['checks'])} promises kept", style=None if report["held"] else "red"
    )
    return shown


def _cell(step: JsonObject) -> str:
    if not step["ran"]:
        return LEFT_OUT
    return f"{step['seconds']:.1f}" if step["proven"] else f"NO {step['seconds']:.1f}"


def verdict(report: JsonObject) -> str:
    """One sentence on the whole."""
    machines = len(report["machines"])
    if report["held"]:
        plural = "" if machines == 1 else "s"
        return f"proven on {machines} machine{plural}: nothing of the first tenant was left for the next one"
    return f"NOT proven: {len(report['failures'])} findings, listed above"
