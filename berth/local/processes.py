"""Which processes of ours run, with which arguments and environment, and the life of one such process."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from berth.cli.known_stack import StackProblem
from berth.local.authority import Authority
from berth.local.fleet import Guests, PlannedNode
from berth.local.servers import require_free_port
from migrations.roles import Role

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
LOG_LINES_SHOWN = 5
GUEST_MEMORY_BYTES = 128 << 20
GUEST_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Endpoints:
    """Where everything of one stack listens."""

    database_url: str
    nats_url: str
    temporal_address: str
    public_port: int
    node_port: int
    database_urls: Mapping[Role, str] = field(default_factory=dict)
    """PostgreSQL as the role of each process; a role without one connects as in `database_url`, which owns the schema."""
    relay_nats_url: str = ""
    """NATS as the relay's user; empty: as in `nats_url`, which is the operators'."""
    worker_nats_url: str = ""
    """NATS as the worker's user; empty: as in `nats_url`."""
    trust_domain: str = "berth.local"
    backup_database_url: str = ""
    read_database_url: str = ""
    """Standbys that serve reads of the public API, as its role; empty: none do."""
    """PostgreSQL as the role of `berth backup`; empty for an outside server, whose role for it is not known."""
    stream_replicas: int = 1
    """NATS servers that keep each message."""
    console_port: int = 0
    """Where agents connect for consoles; 0: the stack serves none."""

    def database_url_of(self, role: Role) -> str:
        """PostgreSQL as this role."""
        return self.database_urls.get(role, self.database_url)

    @property
    def api_url(self) -> str:
        """The public listener."""
        return f"http://127.0.0.1:{self.public_port}"

    @property
    def node_api_url(self) -> str:
        """The node listener, as agents receive it at enrolment."""
        return f"https://127.0.0.1:{self.node_port}"


@dataclass(frozen=True)
class ProcessPlan:
    """One process: `python -m module arguments` with its own `BERTH_*` variables."""

    name: str
    module: str
    metrics_port: int
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    where: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    launcher: str | None = None
    """A module that starts ours: `python -m launcher module arguments`. None in every stack but a test's."""

    @property
    def command(self) -> list[str]:
        """The command line."""
        through = () if self.launcher is None else (self.launcher,)
        return [sys.executable, "-m", *through, self.module, *self.arguments]


def orchestrator_plan(
    listen: Literal["public", "node"], endpoints: Endpoints, authority: Authority, metrics_port: int
) -> ProcessPlan:
    """The API: the public listener, or the listener for nodes."""
    environment = {
        "BERTH_DATABASE_URL": endpoints.database_url_of(Role.PUBLIC_API if listen == "public" else Role.NODE_API),
        "BERTH_METRICS_PORT": str(metrics_port),
        "BERTH_PUBLIC_HOST": "127.0.0.1",
        "BERTH_PUBLIC_PORT": str(endpoints.public_port),
        "BERTH_NODE_HOST": "127.0.0.1",
        "BERTH_NODE_PORT": str(endpoints.node_port),
        "BERTH_NODE_API_URL": endpoints.node_api_url,
        "BERTH_TRUST_DOMAIN": endpoints.trust_domain,
        "BERTH_KEY_SET_FILE": str(authority.key_set),
        # On a local stack every tenant may inject faults, and use all GPUs.
        "BERTH_FAULT_LABELS_ALLOWED": "true",
        "BERTH_SANDBOX_ALLOWED": "true",
        "BERTH_RESCUES_ALLOWED": "true",
        "BERTH_TENANT_GPUS_DEFAULT": "1000000",
        "BERTH_WEBHOOK_HTTP_ALLOWED": "true",
        "BERTH_WEBHOOK_PRIVATE_ADDRESSES_ALLOWED": "true",
        "BERTH_WEBHOOK_PORTS": "[]",
    }
    if listen == "public":
        if endpoints.read_database_url:
            environment["BERTH_READ_DATABASE_URL"] = endpoints.read_database_url
        environment["BERTH_WEBHOOK_KEY_FILE"] = str(authority.webhook_keys)
        environment |= _console_environment(endpoints, authority)
    else:
        environment["BERTH_NODE_CA_CERTIFICATE_FILE"] = str(authority.ca_certificates)
        environment["BERTH_DEPLOY_CA_CERTIFICATE_FILE"] = str(authority.deploy_ca_certificate)
        environment["BERTH_NODE_TLS_CERTIFICATE_FILE"] = str(authority.listener_certificate)
        environment["BERTH_NODE_TLS_KEY_FILE"] = str(authority.listener_key)
    where = endpoints.api_url if listen == "public" else endpoints.node_api_url
    port = endpoints.public_port if listen == "public" else endpoints.node_port
    name = "api" if listen == "public" else "node-api"
    ports = {name: port}
    if listen == "public" and endpoints.console_port:
        ports["consoles"] = endpoints.console_port
    return ProcessPlan(name, "orchestrator", metrics_port, environment, ("--listen", listen), where, ports)


def _console_environment(endpoints: Endpoints, authority: Authority) -> dict[str, str]:
    """The settings of the listener to which agents connect for consoles."""
    if not endpoints.console_port:
        return {}
    return {
        "BERTH_CONSOLE_PORT": str(endpoints.console_port),
        "BERTH_CONSOLE_ADDRESS": f"127.0.0.1:{endpoints.console_port}",
        "BERTH_CONSOLE_TLS_CERTIFICATE_FILE": str(authority.console_certificate),
        "BERTH_CONSOLE_TLS_KEY_FILE": str(authority.console_key),
        "BERTH_NODE_CA_CERTIFICATE_FILE": str(authority.ca_certificates),
    }


def issuer_plan(endpoints: Endpoints, authority: Authority, metrics_port: int) -> ProcessPlan:
    """The issuer: the one process that holds the keys of the node CA and the CA of deploy systems."""
    environment = {
        "BERTH_DATABASE_URL": endpoints.database_url_of(Role.ISSUER),
        "BERTH_METRICS_PORT": str(metrics_port),
        "BERTH_TRUST_DOMAIN": endpoints.trust_domain,
        "BERTH_NODE_CA_CERTIFICATE_FILE": str(authority.ca_certificate),
        "BERTH_NODE_CA_KEY_FILE": str(authority.ca_key),
        "BERTH_DEPLOY_CA_CERTIFICATE_FILE": str(authority.deploy_ca_certificate),
        "BERTH_DEPLOY_CA_KEY_FILE": str(authority.deploy_ca_key),
    }
    return ProcessPlan("issuer", "orchestrator", metrics_port, environment, ("--listen", "issuer"))


def relay_plan(endpoints: Endpoints, metrics_port: int) -> ProcessPlan:
    """The relay from Postgres to NATS."""
    environment = {
        "BERTH_DATABASE_URL": endpoints.database_url_of(Role.RELAY),
        "BERTH_NATS_URL": endpoints.relay_nats_url or endpoints.nats_url,
        "BERTH_LOG_STREAM_REPLICAS": str(endpoints.stream_replicas),
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    return ProcessPlan("relay", "outbox_relay", metrics_port, environment)


def worker_plan(endpoints: Endpoints, authority: Authority, metrics_port: int) -> ProcessPlan:
    """The worker: consumers, workflows, sweepers, metering. It signs tasks for nodes."""
    environment = {
        "BERTH_DATABASE_URL": endpoints.database_url_of(Role.WORKER),
        "BERTH_NATS_URL": endpoints.worker_nats_url or endpoints.nats_url,
        "BERTH_TEMPORAL_ADDRESS": endpoints.temporal_address,
        "BERTH_TEMPORAL_PAYLOAD_KEY_FILE": str(authority.payload_keys),
        "BERTH_TASK_SIGNING_KEY_FILE": str(authority.task_signing_key),
        "BERTH_KEY_SET_FILE": str(authority.key_set),
        # On a local stack every tenant may inject faults.
        "BERTH_FAULT_LABELS_ALLOWED": "true",
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    return ProcessPlan("worker", "worker", metrics_port, environment)


def webhooks_plan(endpoints: Endpoints, authority: Authority, metrics_port: int) -> ProcessPlan:
    """The webhook sender. On a local stack it may send to any address."""
    environment = {
        "BERTH_DATABASE_URL": endpoints.database_url_of(Role.WEBHOOKS),
        "BERTH_WEBHOOK_KEY_FILE": str(authority.webhook_keys),
        "BERTH_WEBHOOK_HTTP_ALLOWED": "true",
        "BERTH_WEBHOOK_PRIVATE_ADDRESSES_ALLOWED": "true",
        "BERTH_WEBHOOK_PORTS": "[]",
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    return ProcessPlan("webhooks", "worker", metrics_port, environment, ("--webhooks",))


def backup_stream_plan(endpoints: Endpoints, directory: Path, metrics_port: int) -> ProcessPlan:
    """The process that streams WAL into a backup directory."""
    environment = {
        "BERTH_BACKUP_DATABASE_URL": endpoints.backup_database_url,
        "BERTH_BACKUP_DIR": str(directory.absolute()),
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    return ProcessPlan("backup", "berth.cli", metrics_port, environment, ("backup", "stream"), str(directory))


def agent_plan(
    node: PlannedNode,
    endpoints: Endpoints,
    authority: Authority,
    state_directory: Path,
    token_file: Path,
    metrics_port: int,
    guests: Guests | None = None,
) -> ProcessPlan:
    """The agent of one node: a pretended one with the driver sandbox, or one with guests with the driver libvirt."""
    environment = {
        "BERTH_API_URL": endpoints.api_url,
        "BERTH_AGENT_STATE_DIR": str(state_directory),
        "BERTH_ROOT_KEYS_FILE": str(authority.root_keys),
        "BERTH_ENROLMENT_TOKEN_FILE": str(token_file),
        "BERTH_ENROLMENT_HTTP_ALLOWED": "true",
        "BERTH_HARDWARE_ID": node.hardware_id,
        "BERTH_AGENT_DRIVER": "sandbox",
        "BERTH_SANDBOX_ALLOWED": "true",
        "BERTH_AGENT_ADVERTISED_HOST": "127.0.0.1",
        # Guests of a stack end with it: no host that goes down would end them.
        "BERTH_AGENT_ENDS_GUESTS": "true",
        "BERTH_AGENT_STOP_SECONDS": "3",
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    if guests is not None:
        environment |= _guest_environment(node, guests)
    where = f"{node.region}, {node.shape}"
    return ProcessPlan(f"agent {node.name}", "node_agent", metrics_port, environment, where=where)


def _guest_environment(node: PlannedNode, guests: Guests) -> dict[str, str]:
    """The settings of the driver libvirt for small guests that may be emulated."""
    return {
        "BERTH_AGENT_DRIVER": "libvirt",
        "BERTH_GUEST_DIR": str(guests.directory / node.name),
        "BERTH_GUEST_USER_ID_FIRST": str(node.user_id_first),
        "BERTH_GUEST_MEMORY_BYTES": str(GUEST_MEMORY_BYTES),
        "BERTH_GUEST_PROCESSORS": "1",
        "BERTH_GUEST_DISK_BYTES": str(GUEST_DISK_BYTES),
        "BERTH_AGENT_READINESS_SECONDS": "180",
    }


@dataclass(frozen=True)
class _Health:
    """What `/ok` says of a process: whether it is ready, and what it waits for an operator to do."""

    is_ready: bool
    why_blocked: str | None = None


def _why_blocked(body: bytes) -> str | None:
    """The sentence of the member `stopped` of a body of `/ok`, which the relay has while it must not publish."""
    try:
        stopped = json.loads(body).get("stopped")
        return None if stopped is None else str(stopped["why"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return None


class ChildProcess:
    """A process of ours as a child: in its own session, its output appended to a log file."""

    def __init__(self, plan: ProcessPlan, log: Path) -> None:
        self.plan = plan
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.spawned: Callable[[int], None] = lambda _: None

    @property
    def name(self) -> str:
        """The plan's name."""
        return self.plan.name

    def spawn(self, environment: Mapping[str, str] | None = None) -> None:
        """Start without waiting, this once with more `environment`. Raises `ServerProblem` if a port of its is busy."""
        for name, port in {**self.plan.ports, f"metrics of {self.name}": self.plan.metrics_port}.items():
            require_free_port(port, name)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.plan.command,
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**inherited, **self.plan.environment, **(environment or {}), "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.spawned(self.process.pid)

    def is_ready(self) -> bool:
        """Whether `/ok` answers 200 now."""
        return self._ask(timeout_seconds=1.0).is_ready

    def why_blocked(self) -> str | None:
        """What the process waits for an operator to do, although it runs; None if it does not."""
        return self._ask(timeout_seconds=1.0).why_blocked

    def wait_ready(self) -> str | None:
        """Return None when `/ok` on the metrics port answers 200, or what the process waits for an operator to do.

        Raises `StackProblem` if it ends or takes too long.
        """
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (answer := self._ask(timeout_seconds=5.0)).is_ready:
            if answer.why_blocked is not None:
                return answer.why_blocked
            if not self.runs():
                raise StackProblem(f"{self.name} {self.how_it_ended()}")
            if time.monotonic() > deadline:
                raise StackProblem(f"{self.name} was not ready within {READY_SECONDS_MAX:.0f} s; see {self.log}")
            time.sleep(0.05)
        return None

    def _ask(self, timeout_seconds: float) -> _Health:
        # Asked many times a second while a stack starts: a new httpx client reads every root certificate, for 20 ms.
        connection = http.client.HTTPConnection("127.0.0.1", self.plan.metrics_port, timeout=timeout_seconds)
        try:
            connection.request("GET", "/ok")
            answer = connection.getresponse()
            return _Health(answer.status == HTTPStatus.OK, _why_blocked(answer.read()))
        except (OSError, http.client.HTTPException):
            return _Health(is_ready=False)
        finally:
            connection.close()

    def runs(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def how_it_ended(self) -> str:
        """Exit status and the last lines of the log, for a person."""
        status = None if self.process is None else self.process.poll()
        return f"{describe_status(status)}; {last_lines(self.log)}"

    def kill(self) -> None:
        """End the process and what it started as a crash would."""
        if self.process is not None and self.runs():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.process is not None and self.runs():
            self.process.terminate()

    def wait_ended(self) -> None:
        """Return when the process has ended; after 20 s it and what it started are killed."""
        if self.process is None:
            return
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


def describe_status(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "does not run"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def last_lines(log: Path) -> str:
    """The end of a log file, on one line."""
    if not log.exists():
        return "it wrote no log"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return "last log lines:\n  " + "\n  ".join(lines[-LOG_LINES_SHOWN:]) if lines else f"its log {log} is empty"
