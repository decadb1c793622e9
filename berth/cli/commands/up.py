"""`berth up`: the local stack in the foreground, with a live view of what is where."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from berth.cli.endings import USAGE, Refused
from berth.cli.session import Session

if TYPE_CHECKING:
    from berth.local.parts import Part

STYLES = {
    "ready": "green", "outside": "cyan", "failed": "red", "starting": "yellow", "stopped": "dim",
    "restarting": "yellow", "blocked": "red",
}  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class View:
    """Shows the parts of a stack: a live table on a terminal, a line per change otherwise, JSON lines for programs."""

    def __init__(self, session: Session, *, live: bool = True) -> None:
        self._session = session
        self._parts: dict[str, Part] = {}
        self.live: Live | None = None
        if live and session.console.is_terminal and not session.json:
            self.live = Live(get_renderable=self._table, console=session.console, refresh_per_second=4)

    def report(self, part: Part) -> None:
        """Show a change."""
        self._parts[part.name] = part
        if self._session.json:
            content = {"name": part.name, "state": part.state, "where": part.where, "pid": part.pid}
            content |= {"why": part.why} if part.why else {}
            typer.echo(json.dumps({**content, "restarts": part.restarts}))
        elif self.live is None and part.state != "starting":
            pid = f" (pid {part.pid})" if part.pid and part.state == "ready" else ""
            took = f" in {part.seconds:.1f} s" if part.state == "ready" else ""
            took += f", restart {part.restarts}" if part.restarts and part.state == "ready" else ""
            detail = part.why or (part.where if part.state != "stopped" else "")
            typer.echo(f"{part.name}: {part.state}{took}{pid} {detail}".rstrip())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("part", "state", "where", "pid", "up"):
            table.add_column(title, overflow="fold", no_wrap=title != "where")
        for part in self._parts.values():
            up = f"{time.monotonic() - part.started:.0f} s" if part.state in ("ready", "starting", "blocked") else ""
            state = f"{part.state}, restart {part.restarts}" if part.restarts else part.state
            table.add_row(part.name, state, part.why or part.where, str(part.pid or ""), up, style=STYLES[part.state])
        logs = [part.log for part in self._parts.values() if part.log]
        if logs:
            table.caption, table.caption_justify = f"logs: a file per part in {logs[0].parent}", "left"
        return table


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that is set on Ctrl-C, SIGTERM and SIGHUP. While starting, the first one interrupts as Ctrl-C does;

    afterwards further ones change nothing, so that stopping in order is never cut short.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def up(
    session: Session,
    agents: Annotated[int, typer.Option(min=0, max=64, help="how many sandbox nodes to start")] = 3,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="the API's port; default: the one used before, else 8080")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="delete the state directory's content first")] = False,
    deaths_max: Annotated[
        int, typer.Option(min=1, max=1000, help="stop everything after one part died this many times within 5 minutes")
    ] = 8,
    ha: Annotated[
        bool, typer.Option("--ha", help="three PostgreSQL servers under Patroni with quorum commit, and three of NATS")
    ] = False,
    read_standbys: Annotated[
        bool, typer.Option("--read-standbys", help="with --ha: the standbys serve lists and the feed's catch-up")
    ] = False,
) -> None:
    """Run PostgreSQL, NATS, Temporal and every process of Berth on this machine until Ctrl-C. A restart keeps the data."""
    # Everything that the stack needs, for this command alone: start-up stays light for all others.
    from berth.local.options import StackOptions
    from berth.local.stack import Stack
    from berth.local.supervision import RestartPolicy
    from berth.process.temporal_connections import variables_of

    settings = session.settings
    if read_standbys and not ha:
        raise Refused("--read-standbys needs --ha: one server has no standby", code="usage", exit_code=USAGE)
    options = StackOptions(
        state_directory=session.state_dir, agents=agents, fresh=fresh, port=port, database_url=settings.database_url,
        nats_url=settings.nats_url, temporal_address=settings.temporal_address, trust_domain=settings.trust_domain,
        restarts=RestartPolicy(deaths_max=deaths_max), backup_directory=settings.backup_dir, ha=ha,
        read_standbys=read_standbys,
        environment={} if settings.temporal_address is None else {"worker": variables_of(settings)},
    )  # fmt: skip
    died = None
    with stopping_on_signals() as stop, ExitStack() as shown:
        view = View(session)
        if view.live is not None:
            shown.enter_context(view.live)
        try:
            with Stack(options, view.report) as stack:
                if not session.json and view.live is None:
                    typer.echo(f"up: the API is {stack.endpoints.api_url}; Ctrl-C stops everything")
                died = stack.watch(stop)
        except KeyboardInterrupt:
            died = None
    if died is not None:
        raise Refused(f"everything was stopped, because {died}", code="child_died")
