"""`berth demo`: runs five acts on a separate local stack and writes a report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from berth.cli.commands.up import View, stopping_on_signals
from berth.cli.endings import FAILED, INTERRUPTED, USAGE, Refused
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.local.demo.act import Say
    from berth.local.fleet import Guests

GUEST_DIR = Path("/var/tmp/berth-demo-guests")
MACHINE_DIR = Path("/var/tmp/berth-demo-machines")
REDFISH_TOOLS = Path("build/redfish")
MACHINES, AT_ONCE, MACHINES_MAX = 3, 2, 8


def demo(
    session: Session,
    fresh: Annotated[bool, typer.Option("--fresh", help="delete the state directory's content first")] = False,
    guest_image: Annotated[
        Path | None, typer.Option(help="boot this image in guests of QEMU, with the driver libvirt", exists=True)
    ] = None,
    guest_dir: Annotated[Path, typer.Option(help="where the guests' disks are kept meanwhile")] = GUEST_DIR,
    deploy_medium: Annotated[
        Path | None,
        typer.Option(help="deploy --guest-image on emulated bare-metal machines, which boot this medium", exists=True),
    ] = None,
    machines: Annotated[int, typer.Option(min=1, max=MACHINES_MAX, help="emulated bare-metal machines")] = MACHINES,
    at_once: Annotated[
        int, typer.Option(min=1, max=MACHINES_MAX, help="machines that work at the same time")
    ] = AT_ONCE,
    machine_dir: Annotated[Path, typer.Option(help="where the machines' disks are kept meanwhile")] = MACHINE_DIR,
    redfish_tools: Annotated[Path, typer.Option(help="environment with sushy-tools")] = REDFISH_TOOLS,
) -> None:
    """Run real allocations through every component. Exit code 0 only if every check of every act held.

    Starts a separate local stack with six nodes in --state-dir (default: var/demo) and stops it at the end. With --guest-image
    it has two nodes with four slots, whose allocations are virtual machines, and plays fewer acts (make demo DRIVER=libvirt).
    With --deploy-medium it has a site with emulated bare-metal machines, and two tenants rent each in turn (make demo
    DRIVER=redfish).
    """
    # The stack and asyncssh, for this command alone: start-up stays light for all others.
    from berth.local.fleet import Guests
    from berth.local.state import MARK

    directory = session.state_dir if session.state_dir_is_named else session.state_dir / "demo"
    if (directory / MARK).exists() and not fresh:
        raise Refused(f"{directory} holds a stack's state; the demo starts from an empty directory: add --fresh")
    if deploy_medium is None:
        _play_acts(session, directory, None if guest_image is None else Guests(guest_image, guest_dir), fresh=fresh)
        return
    if guest_image is None:
        raise Refused("--deploy-medium needs --guest-image, which machines deploy", code="usage", exit_code=USAGE)
    from berth.cli.proof.machine_demo import demo_of_machines
    from berth.local.demo.machines.play import MachineDemo

    places = deploy_medium.absolute(), guest_image.absolute(), redfish_tools.absolute(), machine_dir.absolute()
    demo_of_machines(session, directory, MachineDemo(machines, at_once, *places), _sayer(session), fresh=fresh)


def _sayer(session: Session) -> Say:
    """Prints lines for a person, with the seconds since now."""
    began = time.monotonic()

    def say(line: str) -> None:
        if not session.json:
            session.console.print(f"{time.monotonic() - began:6.1f} s  {line}", markup=False, soft_wrap=True)

    return say


def _play_acts(session: Session, directory: Path, guests: Guests | None, *, fresh: bool) -> None:
    """The acts on nodes with agents."""
    from berth.local.demo.play import REPORT, play, write_report
    from berth.local.fleet import DEMO_AGENTS
    from berth.local.options import StackOptions
    from berth.local.stack import Stack
    from berth.local.state import StateDirectory

    began, say = time.monotonic(), _sayer(session)
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


def table(report: JsonObject) -> Table:
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


def _pair(spread: JsonObject) -> str:
    return f"{spread['p50']:.0f}/{spread['p99']:.0f}" if spread["count"] else "-"


def _figures(act: JsonObject) -> str:
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


def _print_failures(session: Session, report: JsonObject) -> None:
    for act in report["acts"]:
        for check in act["checks"]:
            if not check["held"]:
                session.errors.print(f"({act['act']}) did not hold: {check['claim']}", style="red", markup=False)
