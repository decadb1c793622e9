"""`berth node upgrade`: upgrades agents wave by wave with an operator's command, and halts when a node is worse afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from berth.cli.endings import FAILED, USAGE, Refused
from berth.cli.printing import cell, print_aligned
from berth.cli.rollout.waves import (
    DEFAULT_WAVES,
    Standing,
    environment_of,
    wave_sizes,
    why_left_out,
    why_not_ready,
    why_worse,
)
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import BerthError, Client, Node

Known = TypeVar("Known")
POLL_SECONDS = 2.0
TAIL_BYTES = 400

Nodes = Annotated[list[str] | None, typer.Option("--node", help="only this node (name or id); repeatable")]
Waves = Annotated[
    list[str] | None,
    typer.Option("--wave", help="nodes of the next wave: a number, or a percentage of all; the rest is the last one "
                 f"(default: {', '.join(DEFAULT_WAVES)})"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run for a node, and how long each part may take."""

    version: str
    command: str
    rollback: str | None
    parallel: int
    command_seconds: float
    ready_seconds: float
    settle_seconds: float


@dataclass(slots=True)
class Progress:
    """What became of each node, by name, in order."""

    outcomes: dict[str, str] = field(default_factory=dict)
    halted: str | None = None

    def document(self, version: str) -> JsonObject:
        """For programs."""
        nodes = [{"node": name, "outcome": outcome} for name, outcome in self.outcomes.items()]
        return {"to": version, "nodes": nodes, "halted": self.halted}


def upgrade(
    session: Session,
    to: Annotated[str, typer.Option(help="version that the agents have afterwards, as `berth node list` shows it")],
    run: Annotated[
        str, typer.Option("--run", help="shell command, run here for each node: upgrade and restart its agent")
    ],
    rollback: Annotated[
        str | None, typer.Option(help="shell command that undoes it, run for the nodes of a wave that halts")
    ] = None,
    wave: Waves = None,
    node: Nodes = None,
    region: Annotated[str | None, typer.Option(help="only this region")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="commands at once")] = 8,
    command_seconds: Annotated[float, typer.Option(min=1, help="how long a command may take")] = 600.0,
    ready_seconds: Annotated[float, typer.Option(min=1, help="how long agents have to serve with the version")] = 300.0,
    settle_seconds: Annotated[float, typer.Option(min=0, help="how long a wave must stay well before the next")] = 60.0,
    plan: Annotated[bool, typer.Option("--plan", help="show the waves; run nothing")] = False,
) -> None:
    """Upgrade agents in waves: each node must come back online, with the version, and nothing on it worse than before."""
    if not to.strip() or not run.strip():
        raise Refused("--to and --run must not be empty", code="usage", exit_code=USAGE)
    ordered = Plan(to, run, rollback, parallel, command_seconds, ready_seconds, settle_seconds)
    with session.client() as client:
        chosen = _chosen(client, node, region)
        left_out = {one.name: why for one in chosen if (why := why_left_out(one, to)) is not None}
        wanted = [one for one in chosen if one.name not in left_out]
        try:
            sizes = wave_sizes(wave or DEFAULT_WAVES, len(wanted))
        except ValueError as error:
            raise Refused(str(error), code="usage", exit_code=USAGE) from error
        waves = [wanted[sum(sizes[:index]) : sum(sizes[: index + 1])] for index in range(len(sizes))]
        progress = Progress({name: f"left out: {why}" for name, why in left_out.items()})
        if plan:
            for number, nodes in enumerate(waves, 1):
                progress.outcomes |= {one.name: f"wave {number}" for one in nodes}
        else:
            _Rollout(session, client, ordered, progress).run(waves)
    _show(session, ordered, progress)
    if progress.halted is not None:
        if session.json:  # the document says it
            raise typer.Exit(FAILED)
        raise Refused(f"halted: {progress.halted}", code="upgrade_halted")


def _chosen(client: Client, names: Sequence[str] | None, region: str | None) -> list[Node]:
    """The nodes that were named, else all of the region, by name. A name that does not exist is an error."""
    if names:
        found = {found.id: found for found in (client.get_node(name) for name in names)}
        return sorted(found.values(), key=lambda one: one.name)
    return sorted(client.iterate_nodes(region=region), key=lambda one: one.name)


def _show(session: Session, ordered: Plan, progress: Progress) -> None:
    if session.json:
        session.console.print_json(data=progress.document(ordered.version))
        return
    rows: list[tuple[list[str], str | None]] = [(["node", "outcome"], "bold")]
    rows += [([cell(name), cell(outcome)], None) for name, outcome in progress.outcomes.items()]
    print_aligned(session, rows)


def _why_not_known(error: BerthError) -> str:
    return f"its state is not known: {error.code}: {error.detail}"


class _Rollout:
    """One run over all waves. The database is the memory: a run that was interrupted goes on with what has another version."""

    def __init__(self, session: Session, client: Client, ordered: Plan, progress: Progress) -> None:
        self._session = session
        self._client = client
        self._ordered = ordered
        self._progress = progress

    def run(self, waves: Sequence[Sequence[Node]]) -> None:
        """Upgrade wave by wave, and halt at the first that does not end well, or whose end the API does not report in time."""
        from berth.client import BerthError

        for number, nodes in enumerate(waves, 1):
            self._say(f"wave {number} of {len(waves)}: {len(nodes)} nodes")
            try:
                ends = self._ready_by()
                before = {one.name: self._known(partial(self._standing, one), ends) for one in nodes}
            except BerthError as error:
                self._progress.halted = f"wave {number}: not begun: {_why_not_known(error)}"
                break
            failed = self._commands(nodes, self._ordered.command)
            if not failed:
                failed = self._gate(nodes, before)
            for one in nodes:
                self._progress.outcomes[one.name] = f"halted: {failed[one.name]}" if one.name in failed else "upgraded"
            if failed:
                name, why = next(iter(failed.items()))
                more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
                self._progress.halted = f"wave {number}: {name}: {why}{more}"
                self._roll_back(nodes)
                break
        for later in waves:
            for one in later:
                self._progress.outcomes.setdefault(one.name, "not begun")

    def _roll_back(self, nodes: Sequence[Node]) -> None:
        if self._ordered.rollback is None:
            return
        self._say(f"rolling back {len(nodes)} nodes")
        failed = self._commands(nodes, self._ordered.rollback)
        if not failed:
            failed = self._wait_ready({one.name: one.agent_version or "" for one in nodes})
        for one in nodes:
            why = f"; rollback failed: {failed[one.name]}" if one.name in failed else "; rolled back"
            self._progress.outcomes[one.name] += why

    def _gate(self, nodes: Sequence[Node], before: dict[str, Standing]) -> dict[str, str]:
        """Why nodes of the wave do not pass; empty: all do, and still did when the time to settle had passed."""
        failed = self._wait_ready({one.name: self._ordered.version for one in nodes})
        if failed:
            return failed
        ends = time.monotonic() + self._ordered.settle_seconds
        # An API that is away when the time has passed has as long to return as agents have to serve.
        gives_up = ends + self._ordered.ready_seconds
        while True:
            now = time.monotonic()
            found, is_away = self._look({one.name: partial(self._why_not_well, one, before[one.name]) for one in nodes})
            if found and not (is_away and now < gives_up):
                return found
            if now >= ends and not is_away:
                return {}
            time.sleep(POLL_SECONDS if is_away else min(POLL_SECONDS, max(0.0, ends - time.monotonic())))

    def _wait_ready(self, versions: dict[str, str]) -> dict[str, str]:
        """Why nodes do not serve with their version in time; empty: all do."""
        ends = self._ready_by()
        waiting = dict(versions)
        while True:
            asks = {name: partial(self._why_not_ready, name, version) for name, version in waiting.items()}
            found, _ = self._look(asks)
            if not found or time.monotonic() >= ends:
                return {name: f"{reason} after {self._ordered.ready_seconds:.0f} s" for name, reason in found.items()}
            waiting = {name: version for name, version in waiting.items() if name in found}
            time.sleep(POLL_SECONDS)

    def _ready_by(self) -> float:
        return time.monotonic() + self._ordered.ready_seconds

    def _why_not_ready(self, name: str, version: str) -> str | None:
        return why_not_ready(self._client.get_node(name), version)

    def _why_not_well(self, node: Node, before: Standing) -> str | None:
        now = self._client.get_node(str(node.id))
        return why_not_ready(now, self._ordered.version) or why_worse(before, self._standing(now))

    def _look(self, asks: Mapping[str, Callable[[], str | None]]) -> tuple[dict[str, str], bool]:
        """What is wrong with each node by now, and whether the API is away: then it is asked for no further node."""
        from berth.client import BerthError, Overloaded, Unavailable

        found: dict[str, str] = {}
        away: str | None = None
        for name, ask in asks.items():
            try:
                why = away or ask()
            except (Overloaded, Unavailable) as error:
                why = away = _why_not_known(error)
            except BerthError as error:
                why = _why_not_known(error)
            if why is not None:
                found[name] = why
        return found, away is not None

    def _known(self, ask: Callable[[], Known], ends: float) -> Known:
        """What `ask` returns, tried until `ends` while the API does not answer or sheds load. Raises what `ask` raises."""
        from berth.client import Overloaded, Unavailable

        while True:
            try:
                return ask()
            except (Overloaded, Unavailable):
                if time.monotonic() >= ends:
                    raise
            time.sleep(POLL_SECONDS)

    def _standing(self, node: Node) -> Standing:
        """What is wrong with the node now."""
        from berth.client import Archived, NotFound

        slots = node.slots if node.slots is not None else self._client.get_node(str(node.id)).slots or []
        holders = {slot.holder for slot in slots if slot.state == "allocated" and slot.holder is not None}
        unhealthy = set()
        for holder in holders:
            try:
                health = self._client.get_any_allocation(holder).health
            except (Archived, NotFound):  # it has ended, or the API is of a version without this path
                self._say(f"{node.name}: the health of allocation {holder} is not known, and does not count")
                continue
            if health is not None and health.state != "healthy":
                unhealthy.add(holder)
        return Standing(
            node.cleanup_blocked_slots, frozenset(slot.index for slot in slots if slot.state == "out_of_service"),
            frozenset(unhealthy), self._faults(node),
        )  # fmt: skip

    def _faults(self, node: Node) -> frozenset[str]:
        """Faults that the last health probe found; before the first probe none is known."""
        from berth.client import NotFound

        try:
            found = self._client.get_node_health(node.id).faults
        except NotFound:
            return frozenset()
        return frozenset(f"{one.cause} {one.subject}" for one in found)

    def _commands(self, nodes: Sequence[Node], text: str) -> dict[str, str]:
        """Run a command for each node; why it failed, by name. All that were begun end before this returns."""
        with ThreadPoolExecutor(self._ordered.parallel) as pool:
            ended = list(pool.map(lambda one: self._command(one, text), nodes))
        return {one.name: why for one, why in zip(nodes, ended, strict=True) if why is not None}

    def _command(self, node: Node, text: str) -> str | None:
        environment = {**os.environ, **environment_of(node, self._ordered.version)}
        # To a file: what the command leaves running would hold a pipe open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", text], env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(self._ordered.command_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"its command took longer than {self._ordered.command_seconds:.0f} s"
            if process.returncode == 0:
                return None
            output.seek(max(0, output.tell() - TAIL_BYTES))
            said = " ".join(output.read().decode(errors="replace").split())
        return f"its command ended with {process.returncode}: {said}"

    def _say(self, line: str) -> None:
        if not self._session.json:
            self._session.console.print(line, markup=False)
