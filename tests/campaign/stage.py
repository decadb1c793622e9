"""The stack that a campaign plays on: two of each process of ours where the stack allows it, six agents, deadlines of
seconds, and the means to hurt every part by its name.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import psutil
import psycopg
from psycopg.types.json import Jsonb

from berth.local.authority import Authority
from berth.local.fleet import PlannedNode
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
from berth.local.servers import LocalServer
from berth.local.stack import Stack
from tests.campaign.clients.accounts.crowding import READS_PER_SECOND, TENANT_ID, WRITES_PER_SECOND
from tests.campaign.clients.accounts.receiving import TIMEOUT_SECONDS
from tests.log.retention.partitions import cut_log
from tests.proxy import Proxies
from tests.support.whole_stack import NODE_API
from tests.testbuild.planted_bugs import PLANTED_BUGS, PLANTED_SQL

LAUNCHER = "tests.testbuild"
SANDBOX_AGENTS = 3
"""The first so many nodes make real guests; the others answer at once."""

LAST_PORT = re.compile(r"(?<=127\.0\.0\.1:)([0-9]+)")

DEADLINES = {
    "BERTH_REQUESTED_SECONDS_MAX": "20",
    "BERTH_PROVISION_SECONDS_MAX": "10",
    "BERTH_RELEASE_SECONDS_MAX": "6",
    "BERTH_RELEASE_ATTEMPTS_MAX": "3",
    "BERTH_LOCK_TIMEOUT_SECONDS": "2",
    "BERTH_TRANSACTION_TIMEOUT_SECONDS": "10",
    "BERTH_UNITS_SECONDS_MAX": "12",
    "BERTH_RESERVATION_RETENTION_SECONDS": "20",
}
WORKER = {
    **DEADLINES,
    "BERTH_SWEEP_SECONDS": "1",
    "BERTH_SWEEP_GRACE_SECONDS": "2",
    "BERTH_NODE_SILENT_SECONDS": "6",
    "BERTH_ENDING_NOTICE_SECONDS": "2",
    "BERTH_WORKER_ACK_WAIT_SECONDS": "4",
    "BERTH_WORKER_STEP_SECONDS": "2",
    "BERTH_WORKER_STICKY_SECONDS": "1",
    "BERTH_WORKER_POSITION_SECONDS": "1",
    "BERTH_WORKER_PULL_HEARTBEAT_SECONDS": "1",
}
LOG_PARTITION_VERSIONS = 100
LOG_AGE_SECONDS_MIN = 5.0
TRUNCATION = {
    "BERTH_LOG_TRUNCATION_SECONDS": "1",
    "BERTH_LOG_AGE_SECONDS_MIN": str(LOG_AGE_SECONDS_MIN),
    "BERTH_LOG_VERSIONS_MIN": "50",
}
"""The workers drop a partition of the log as soon as it is that old and no reader needs it."""
KEPT = {"BERTH_NOTIFICATIONS_KEPT_VERSIONS_MAX": "300"}
"""A subscription that is further behind does not delay that."""
RATES = {
    "BERTH_RATES_OF_TENANTS": json.dumps({str(TENANT_ID): {"write": WRITES_PER_SECOND, "read": READS_PER_SECOND}}),
}
WEBHOOKS = {
    **{name: DEADLINES[name] for name in ("BERTH_LOCK_TIMEOUT_SECONDS", "BERTH_TRANSACTION_TIMEOUT_SECONDS")},
    "BERTH_WEBHOOK_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS), "BERTH_WEBHOOK_TICK_SECONDS": "0.2",
}  # fmt: skip
ISSUER = {"BERTH_NODE_CERTIFICATE_SECONDS": "100"}
"""A certificate is valid from a minute before its issue, so that it is renewed after 20 s."""
RELAY = {"BERTH_RELAY_STEP_BACK_SECONDS": "0.3", "BERTH_RELAY_PUBLISH_TIMEOUT_SECONDS": "2"}
AGENT = {
    "BERTH_AGENT_HEARTBEAT_SECONDS": "1",
    "BERTH_AGENT_WAIT_SECONDS": "5",
    "BERTH_AGENT_READINESS_SECONDS": "6",
}


class Stage(Stack):
    """The stack, hurt by name. `plant` names a bug of tests/testbuild/planted_bugs.py for every process of ours.

    `truncates`: the log is truncated while the load goes on.
    """

    def __init__(self, directory: Path, agents: int = 6, plant: str | None = None, *, truncates: bool = False) -> None:
        self.plant = plant
        self.truncates = truncates
        self.links = Proxies()
        self._leaving: list[ChildProcess] = []
        launcher = LAUNCHER if plant in PLANTED_BUGS else None
        super().__init__(StackOptions(directory, agents=agents, fresh=True, wished_port=None, launcher=launcher))

    def _control_plane(self, endpoints: Endpoints, authority: Authority) -> list[ProcessPlan]:
        """Two public APIs, one node API, two relays, two workers, a webhook sender. The bug's SQL runs after the migrations."""
        if self.plant in PLANTED_SQL:
            with psycopg.connect(endpoints.database_url) as connection:
                connection.execute(PLANTED_SQL[self.plant].encode())
        if self.truncates:
            with psycopg.connect(endpoints.database_url) as connection:
                cut_log(connection, LOG_PARTITION_VERSIONS)
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
            "orchestrator": {**DEADLINES, **NODE_API, **KEPT, **RATES, **ISSUER},
            "worker": {**WORKER, **(TRUNCATION if self.truncates else {})},
            "outbox_relay": RELAY,
        }
        return [self._with(plan, WEBHOOKS if plan.name == "webhooks" else more[plan.module]) for plan in plans]

    def _agent(self, *arguments: object) -> ProcessPlan:
        """The first three agents make real guests."""
        plan = super()._agent(*arguments)  # type: ignore[arg-type]
        self._agents_planned = getattr(self, "_agents_planned", 0) + 1
        driver = "sandbox" if self._agents_planned <= SANDBOX_AGENTS else "noop"
        return self._with(plan, {**AGENT, "BERTH_AGENT_DRIVER": driver})

    def _with(self, plan: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
        bug = {"BERTH_PLANTED_BUG": self.plant} if self.plant in PLANTED_BUGS and self.plant else {}
        return replace(plan, environment={**plan.environment, **environment, **bug, **self._linked(plan)})

    def _linked(self, plan: ProcessPlan) -> dict[str, str]:
        """The servers' addresses in the environment of this process: each behind a separate link."""
        servers = {
            "BERTH_DATABASE_URL": ("postgres", plan.environment.get("BERTH_DATABASE_URL")),
            "BERTH_NATS_URL": ("nats", plan.environment.get("BERTH_NATS_URL")),
            "BERTH_TEMPORAL_ADDRESS": ("temporal", plan.environment.get("BERTH_TEMPORAL_ADDRESS")),
        }
        if plan.module == "node_agent":
            servers = {"BERTH_NODE_API_URL": ("node-api", self.endpoints.node_api_url)}
        linked = {}
        for variable, (server, address) in servers.items():
            if address is not None:
                before, port, after = LAST_PORT.split(address)
                linked[variable] = f"{before}{self.links.make(f'{plan.name} > {server}', int(port)).port}{after}"
        return linked

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
        added = self._as_asked(self._with(plan, {**AGENT, "BERTH_AGENT_DRIVER": "noop"}))
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
        names = [child.name.removeprefix("agent ") for child in self._children if child.plan.module == "node_agent"]
        return {name: self.state.agent(name) for name in names}

    @property
    def agent_logs(self) -> dict[str, Path]:
        """Logs of all agents, by the node's name."""
        agents = (child for child in self._children if child.plan.module == "node_agent")
        return {child.name.removeprefix("agent "): child.log for child in agents}

    def _child(self, name: str) -> ChildProcess | None:
        return next((child for child in self._children if child.name == name), None)

    def _server(self, name: str) -> LocalServer | None:
        return next((server for server in self._servers if server.name == name), None)

    def _pid(self, name: str) -> int | None:
        part = self._child(name) or self._server(name)
        return None if part is None or part.process is None else part.process.pid

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
        pid = self._pid(name)
        if pid is None:
            return
        with suppress(psutil.NoSuchProcess):
            # PostgreSQL's backends do the work, each in a separate process group.
            family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

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


def _second(plan: ProcessPlan) -> ProcessPlan:
    return replace(plan, name=f"{plan.name}-2", ports={f"{name}-2": port for name, port in plan.ports.items()})
