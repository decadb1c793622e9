"""The stack that a campaign plays on: two of each process of ours where the stack allows it, six agents, deadlines of
seconds, and the means to hurt every part by its name. How faults do that: tests/campaign/faults.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

import psutil
import psycopg
from psycopg.types.json import Jsonb

from berth.local.authority import Authority
from berth.local.fleet import PlannedNode
from berth.local.high_availability.member import Member
from berth.local.nats_cluster import NatsMember
from berth.local.options import StackOptions
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    ProcessPlan,
    agent_plan,
    issuer_plan,
    orchestrator_plan,
    relay_plan,
    webhooks_plan,
    worker_plan,
)
from berth.local.servers import LocalPostgres, LocalServer
from berth.local.stack import Stack
from tests.campaign import stage_settings as settings
from tests.campaign.faults.disks import SmallDisk
from tests.campaign.schedule import Targets
from tests.log.retention.partitions import cut_log
from tests.proxy import Proxies
from tests.support.whole_stack import NODE_API
from tests.testbuild.interposing import Interposed, build_library, can_interpose
from tests.testbuild.planted_bugs import PLANTED_BUGS, PLANTED_SQL

LAUNCHER = "tests.testbuild"
SANDBOX_AGENTS = 3
"""The first so many nodes make real guests; the others answer at once."""

PORT = re.compile(r"(?<=127\.0\.0\.1:)[0-9]+|(?<=port=)[0-9,]+")
"""The ports of an address: one for each server, or the list of those of several PostgreSQL servers."""
AGENT_PREFIX = "agent "
POSTGRES = {"max_wal_size": "256MB"}
"""So little that a small file system holds it."""


class Stage(Stack):
    """The stack, hurt by name. `plant` names a bug of tests/testbuild/planted_bugs.py for every process of ours.

    `truncates`: the log is truncated while the load goes on.
    """

    def __init__(
        self, directory: Path, agents: int = 6, plant: str | None = None, *, truncates: bool = False, ha: bool = False
    ) -> None:
        self.plant = plant
        self.truncates = truncates
        self.links = Proxies()
        self._leaving: list[ChildProcess] = []
        self.routes = Proxies()
        """Between the servers of NATS, where there are several."""
        self.interposed: dict[str, Interposed] = {}
        self.disk: SmallDisk | None = None
        self._library: Path | None = None
        launcher = LAUNCHER if plant in PLANTED_BUGS else None
        super().__init__(StackOptions(directory, agents=agents, fresh=True, wished_port=None, launcher=launcher, ha=ha))

    def _start(self) -> None:
        SmallDisk.forget(self.state.path / "postgres")
        super()._start()

    def _stop(self) -> None:
        try:
            super()._stop()
        finally:
            if self.disk is not None:
                self.disk.leave()
                self.disk = None

    def _start_servers(self) -> Endpoints:
        """Everything interposed is built before the first server starts."""
        self._library = build_library(self._interposing_directory()) if can_interpose() else None
        return super()._start_servers()

    def _interposing_directory(self) -> Path:
        directory = self.state.path / "interposed"
        directory.mkdir(mode=0o755, exist_ok=True)
        return directory

    def _interpose(self, name: str) -> dict[str, str]:
        """The environment in which this part's clock and fsync can be set; empty without a C compiler."""
        if self._library is None:
            return {}
        file = self._interposing_directory() / f"{name.replace(' ', '-')}.control"
        self.interposed[name] = Interposed(self._library, file)
        return self.interposed[name].environment

    def _watch_over(self, server: LocalServer, stop_signal: signal.Signals) -> None:
        super()._watch_over(server, stop_signal)
        if isinstance(server, LocalPostgres):
            server.settings |= POSTGRES
            self.disk = SmallDisk.mount(server.directory)
            environment = {**os.environ, **self._interpose(server.name)}
            server._spawn = partial(server._spawn, environment=environment)  # type: ignore[method-assign]
        if isinstance(server, NatsMember):
            server._route_ports = tuple(
                port if port == server._route_port else self.routes.make(f"{server.name} > nats-{n}", port).port
                for n, port in enumerate(server._route_ports, 1)
            )

    def _control_plane(self, endpoints: Endpoints, authority: Authority) -> list[ProcessPlan]:
        """Two public APIs, one node API, two relays, two workers, a webhook sender. The bug's SQL runs after the migrations."""
        if self.plant in PLANTED_SQL:
            with psycopg.connect(endpoints.database_url) as connection:
                connection.execute(PLANTED_SQL[self.plant].encode())
        if self.truncates:
            with psycopg.connect(endpoints.database_url) as connection:
                cut_log(connection, settings.LOG_PARTITION_VERSIONS)
        port = self._ports.of
        second = replace(endpoints, public_port=port("api-2"), console_port=port("consoles-2"))
        self.api_urls = [endpoints.api_url, second.api_url]
        plans = [
            orchestrator_plan("public", endpoints, authority, port("api-metrics")),
            _second(orchestrator_plan("public", second, authority, port("api-2-metrics"))),
            orchestrator_plan("node", endpoints, authority, port("node-api-metrics")),
            relay_plan(endpoints, port("relay-metrics")),
            _second(relay_plan(endpoints, port("relay-2-metrics"))),
            issuer_plan(endpoints, authority, port("issuer-metrics")),
            worker_plan(endpoints, authority, port("worker-metrics")),
            _second(worker_plan(endpoints, authority, port("worker-2-metrics"))),
            webhooks_plan(endpoints, authority, port("webhooks-metrics")),
        ]
        more: dict[str, Mapping[str, str]] = {
            "orchestrator": {**settings.DEADLINES, **NODE_API, **settings.KEPT, **settings.RATES, **settings.ISSUER},
            "worker": {**settings.WORKER, **(settings.TRUNCATION if self.truncates else {})},
            "outbox_relay": settings.RELAY,
        }
        return [self._with(plan, settings.WEBHOOKS if plan.name == "webhooks" else more[plan.module]) for plan in plans]

    def _agent(self, *arguments: object) -> ProcessPlan:
        """The first three agents make real guests."""
        plan = super()._agent(*arguments)  # type: ignore[arg-type]
        self._agents_planned = getattr(self, "_agents_planned", 0) + 1
        driver = "sandbox" if self._agents_planned <= SANDBOX_AGENTS else "noop"
        return self._with(plan, {**settings.AGENT, "BERTH_AGENT_DRIVER": driver})

    def _with(self, plan: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
        bug = {"BERTH_PLANTED_BUG": self.plant} if self.plant in PLANTED_BUGS and self.plant else {}
        more = {**environment, **bug, **self._linked(plan), **self._interpose(plan.name)}
        return replace(plan, environment={**plan.environment, **more})

    def _linked(self, plan: ProcessPlan) -> dict[str, str]:
        """The servers' addresses in the environment of this process: each behind a separate link."""
        servers = {
            "BERTH_DATABASE_URL": ("postgres", plan.environment.get("BERTH_DATABASE_URL")),
            "BERTH_NATS_URL": ("nats", plan.environment.get("BERTH_NATS_URL")),
            "BERTH_TEMPORAL_ADDRESS": ("temporal", plan.environment.get("BERTH_TEMPORAL_ADDRESS")),
        }
        if plan.module == "node_agent":
            servers = {"BERTH_NODE_API_URL": ("node-api", self.endpoints.node_api_url)}
        return {
            variable: PORT.sub(lambda found, server=server: self._link(plan.name, server, found.group()), address)  # type: ignore[misc]
            for variable, (server, address) in servers.items()
            if address is not None
        }

    def _link(self, process: str, server: str, ports: str) -> str:
        """The ports of links from this process to these ports of a server. Of several servers each has a separate link."""
        return ",".join(
            str(self.links.make(self._link_name(process, server, int(p)), int(p)).port) for p in ports.split(",")
        )

    def _link_name(self, process: str, server: str, port: int) -> str:
        for one in self._servers:
            if port == (one.ports.postgres if isinstance(one, Member) else one.port):
                return f"{process} > {one.name}"
        return f"{process} > {server}"

    def token_file(self, name: str) -> Path:
        """Where the agent of a node looks for an enrolment token."""
        return self.state.secrets / f"enrolment-{name}.token"

    def add_agent(self, planned: PlannedNode) -> None:
        """Start the agent of a node that was registered since, with the token in its file; it is not waited for."""
        directory = self.state.agent(planned.name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        port = self._ports.of(f"agent-{planned.name}-metrics")
        plan = agent_plan(
            planned, self.endpoints, self.authority, directory, self.token_file(planned.name), port, self.options.guests
        )
        added = self._as_asked(self._with(plan, {**settings.AGENT, "BERTH_AGENT_DRIVER": "noop"}))
        child = ChildProcess(added, self.state.log / f"{added.name.replace(' ', '-')}.log")
        child.spawn()
        self._children.append(child)

    def release_agent(self, name: str) -> None:
        """From now on the agent of a node may end by itself: it is neither started again nor waited for."""
        child = self._child(f"agent {name}")
        if child is not None:
            self._children.remove(child)
            self._leaving.append(child)

    def take_agent_back(self, name: str) -> None:
        """The opposite."""
        for child in [child for child in self._leaving if child.name == f"agent {name}"]:
            self._leaving.remove(child)
            self._children.append(child)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the links last."""
        try:
            for child in self._leaving:
                child.kill()
            super().__exit__(kind, error, trace)
        finally:
            self.links.close()
            self.routes.close()

    @property
    def targets(self) -> Targets:
        """What faults may hit here."""
        agents = [name for name in self.process_names if name.startswith(AGENT_PREFIX)]
        sorts: dict[str, list[str]] = {}
        for name in self.process_names:
            sorts.setdefault(sort_of_process(name), []).append(name)
        small = ["postgres"] if self.disk is not None else []
        alone = self.cluster is None
        return Targets(
            self.process_names,
            [name for name in self.server_names if not name.startswith("postgres-")],
            list(self.links.by_name),
            sorted(self.sandboxes),
            agents=agents,
            rolls=sorts,
            clocks=[name for name in self.interposed if name != "postgres"],
            fsyncs=[name for name in self.interposed if name == "postgres" or name in agents],
            disks=[*(small if alone else ()), *(("nats",) if alone else ()), *agents],
            database=["postgres"] if alone else [],
            stores=["nats"] if alone else [],
            cluster=[] if alone else ["postgres cluster"],
            members=[] if alone else [name for name in self.server_names if name.startswith("nats-")],
        )

    @property
    def process_names(self) -> list[str]:
        """Every process of ours, in the order of the plan."""
        return [child.name for child in self._children]

    @property
    def server_names(self) -> list[str]:
        """PostgreSQL, NATS, Temporal."""
        return [server.name for server in self._servers]

    @property
    def sandboxes(self) -> dict[str, Path]:
        """State directories of the nodes that make real guests, by the node's name."""
        return {name: path for name, path in self.agent_directories.items() if (path / "sandbox").exists()}

    @property
    def agent_directories(self) -> dict[str, Path]:
        """State directories of all agents, by the node's name."""
        names = [c.name.removeprefix(AGENT_PREFIX) for c in self._children if c.name.startswith(AGENT_PREFIX)]
        return {name: self.state.agent(name) for name in names}

    @property
    def agent_logs(self) -> dict[str, Path]:
        """Logs of all agents, by the node's name."""
        agents = (child for child in self._children if child.name.startswith(AGENT_PREFIX))
        return {child.name.removeprefix(AGENT_PREFIX): child.log for child in agents}

    def _child(self, name: str) -> ChildProcess | None:
        return next((child for child in self._children if child.name == name), None)

    def server(self, name: str) -> LocalServer:
        """A server by its name, which must exist."""
        return next(server for server in self._servers if server.name == name)

    def _server(self, name: str) -> LocalServer | None:
        return next((server for server in self._servers if server.name == name), None)

    def _pid(self, name: str) -> int | None:
        part = self._child(name) or self._server(name)
        return None if part is None or part.process is None else part.process.pid

    def pid_of(self, name: str) -> int:
        """The process id of a part. Asserts that it runs."""
        pid = self._pid(name)
        assert pid is not None, f"{name} does not run"
        return pid

    def ends(self, name: str) -> bool:
        """Whether a part has ended."""
        return name in self.dead()

    def terminate(self, name: str) -> None:
        """End a process of ours in order, and wait for its end."""
        child = self._child(name)
        assert child is not None, f"{name} is no process of ours"
        child.terminate()
        child.wait_ended()

    def answers(self, name: str) -> bool:
        """Whether a process of ours answers `/ok`."""
        child = self._child(name)
        return child is not None and child.is_ready()

    def kill(self, name: str) -> None:
        """End a part as a crash would."""
        child = self._child(name)
        if child is not None and child.process is not None:
            child.process.kill()
            child.process.wait()
        elif (server := self._server(name)) is not None:
            server.kill()

    def stop(self, name: str) -> None:
        """End a server in order."""
        server = self._server(name)
        if server is not None:
            server.stop()

    def start(self, name: str) -> None:
        """Start a part that has ended; nothing if it runs. A server is waited for, a process of ours is not."""
        child = self._child(name)
        if child is not None and not child.runs():
            child.spawn()
        server = self._server(name)
        if server is not None and (server.process is None or server.process.poll() is not None):
            server.start()

    def pause(self, name: str) -> None:
        """Stop a part where it is: its connections stay open, its clock goes on."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused part go on."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        for process in self.family_of(name):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def family_of(self, name: str) -> list[psutil.Process]:
        """The processes of a part; none if it does not run. PostgreSQL's backends do the work, each in a separate group."""
        pid = self._pid(name)
        if pid is None:
            return []
        try:
            return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def calm(self) -> None:
        """Set every clock right, every fsync fast, and give the disks room."""
        for interposed in self.interposed.values():
            interposed.set_clock(0)
            interposed.set_fsync(0.0)
        if self.disk is not None:
            self.disk.give_room()

    def set_faults(self, node: str, switches: Mapping[str, str]) -> None:
        """Flip the sandbox driver's switches of a node (docs/reference/sandbox-driver.md)."""
        with psycopg.connect(self.endpoints.database_url, connect_timeout=3) as connection:
            connection.execute("update nodes set faults = %s where name = %s", (Jsonb(dict(switches)), node))

    def dead(self) -> list[str]:
        """Parts that have ended by themselves or were killed."""
        ended = [child.name for child in self._children if not child.runs()]
        return ended + [s.name for s in self._servers if s.process is None or s.process.poll() is not None]

    def wait_ready(self) -> None:
        """Return when every process of ours answers `/ok`."""
        for child in self._children:
            child.wait_ready()


def sort_of_process(name: str) -> str:
    """`worker` of `worker-2`, `agent` of `agent eu-1-slice-1`."""
    return "agent" if name.startswith("agent ") else name.removesuffix("-2")


def _second(plan: ProcessPlan) -> ProcessPlan:
    return replace(plan, name=f"{plan.name}-2", ports={f"{name}-2": port for name, port in plan.ports.items()})
