"""`berth demo`: runs five acts on a separate local stack and writes a report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from berth.cli.commands.up import View, stopping_on_signals
from berth.cli.endings import FAILED, INTERRUPTED, Refused
from berth.cli.session import Session

GUEST_DIR = Path("/var/tmp/berth-demo-guests")


def demo(
    session: Session,
    fresh: Annotated[bool, typer.Option("--fresh", help="delete the state directory's content first")] = False,
    guest_image: Annotated[
        Path | None, typer.Option(help="boot this image in guests of QEMU, with the driver libvirt", exists=True)
    ] = None,
    guest_dir: Annotated[Path, typer.Option(help="where the guests' disks are kept meanwhile")] = GUEST_DIR,
) -> None:
    """Run real allocations through every component. Exit code 0 only if every check of every act held.

    Starts a separate local stack with six nodes in --state-dir (default: var/demo) and stops it at the end. With --guest-image
    it has two nodes with four slots, whose allocations are virtual machines, and plays fewer acts (make demo DRIVER=libvirt).
    """
    # The stack and asyncssh, for this command alone: start-up stays light for all others.
    from berth.local.demo.play import REPORT, play, write_report
    from berth.local.fleet import DEMO_AGENTS, Guests
    from berth.local.options import StackOptions
    from berth.local.stack import Stack
    from berth.local.state import MARK, StateDirectory

    directory = session.state_dir if session.state_dir_is_named else session.state_dir / "demo"
    if (directory / MARK).exists() and not fresh:
        raise Refused(f"{directory} holds a stack's state; the demo starts from an empty directory: add --fresh")
    began = time.monotonic()

    def say(line: str) -> None:
        if not session.json:
            session.console.print(f"{time.monotonic() - began:6.1f} s  {line}", markup=False, soft_wrap=True)

    guests = None if guest_image is None else Guests(guest_image, guest_dir)
    options = StackOptions(directory, agents=DEMO_AGENTS, fresh=fresh, wished_port=None, guests=guests)
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
    """The report as a table for a terminal of 80 columns."""
    heading = f"berth demo, {report['seconds']} s; latencies in milliseconds, p50/p99"
    shown = Table(title=heading, title_justify="left", show_lines=True)
    for title, widest in (("act", 18), ("held", 5), ("s", 5), ("create", 8), ("to active", 9), ("figures", None)):
        shown.add_column(title, max_width=widest)
    for act in report["acts"]:
        held = sum(1 for check in act["checks"] if check["held"])
        shown.add_row(
            f"({act['act']}) {act['title']}", f"{held}/{len(act['checks'])}", f"{act['seconds']:.1f}",
            _pair(act["create_ms"]), _pair(act["post_to_active_ms"]), _figures(act),
            style=None if act["held"] else "red",
        )  # fmt: skip
    events = f"{report['events_published']} events published, {report['overlaps_found']} overlaps"
    shown.add_row(
        "all acts", "yes" if report["held"] else "NO", f"{report['seconds']:.1f}",
        _pair(report["create_ms"]), _pair(report["post_to_active_ms"]), events,
    )  # fmt: skip
    return shown


def _pair(spread: dict[str, Any]) -> str:
    return f"{spread['p50']:.0f}/{spread['p99']:.0f}" if spread["count"] else "-"


def _figures(act: dict[str, Any]) -> str:
    """The act's figures for a person."""
    said: list[str] = []
    for name in ("capacity", "placed", "jobs", "overlaps", "timeline_entries"):
        if name in act:
            said.append(f"{act[name]} {name.replace('_', ' ')}")
    for name in ("refused", "ends"):
        said += [f"{count} {end.replace('_', ' ')}" for end, count in act.get(name, {}).items()]
    said += [item.replace("_", " ") for item, held in act.get("proof", {}).items() if held]
    if act.get("versions_contiguous"):
        said.append("versions contiguous")
    return ", ".join(said)


def _print_failures(session: Session, report: dict[str, Any]) -> None:
    for act in report["acts"]:
        for check in act["checks"]:
            if not check["held"]:
                session.errors.print(f"({act['act']}) did not hold: {check['claim']}", style="red", markup=False)
