"""The local stack: starts everything in order, watches it, stops everything in reverse order.

    with Stack(options, report) as stack:      # everything answers from here on
        why = stack.watch(stop)                # restarts what dies; returns when `stop` is set, or when it gives up

The same code serves `berth up`, `berth demo` and tests. Servers that the environment names are used, not started.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import migrations
from berth.cli.deployment.admin_key import admin_key_works, create_admin_key
from berth.cli.known_stack import (
    ADMIN_KEY_FILE,
    DATABASE_URL_FILE,
    ENDPOINTS_FILE,
    NATS_URL_FILE,
    read_secret,
)
from berth.client import Client
from berth.local import secret_files
from berth.local.authority import Authority, ensure_authority
from berth.local.backups import prepare_backups
from berth.local.fleet import PlannedNode, plan_fleet, plan_guest_fleet
from berth.local.high_availability.cluster import (
    LocalCluster,
    MemberStatus,
    StatusWatch,
    cluster_of,
    end_leftover_servers,
)
from berth.local.high_availability.layout import CLUSTER_DIRECTORY, require_layout
from berth.local.high_availability.member import Member, SupervisedMember
from berth.local.leftovers import Records, record_of
from berth.local.nats_cluster import addresses_of, nats_servers_of
from berth.local.options import StackOptions
from berth.local.parts import Part
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    ProcessPlan,
    agent_plan,
    backup_stream_plan,
    issuer_plan,
    orchestrator_plan,
    relay_plan,
    webhooks_plan,
    worker_plan,
)
from berth.local.restores import wait_until_restored
from berth.local.seeding import ensure_node, seed_catalogue, wait_online
from berth.local.servers import LocalPostgres, LocalServer, LocalTemporal, require_free_port
from berth.local.state import RESTARTS, Ports, StateDirectory
from berth.local.supervision import Change, Supervised, SupervisedProcess, SupervisedServer, Supervisor, Watched

WATCH_SECONDS = 0.2


class Stack:
    """A stack on one state directory. Raises `ServerProblem`, `StackProblem`, `SchemaProblem` or `BerthError`."""

    def __init__(self, options: StackOptions, report: Callable[[Part], None] = lambda _: None) -> None:
        self.options = options
        self.state = StateDirectory(options.state_directory)
        self.parts: dict[str, Part] = {}
        self._report = report
        self._servers: list[LocalServer] = []
        self._children: list[ChildProcess] = []
        self._held = ExitStack()
        self.cluster: LocalCluster | None = None

    _migrate = staticmethod(migrations.upgrade)

    def __enter__(self) -> Self:
        """Start everything; what has started is stopped again when something cannot."""
        self._held.enter_context(self.state.locked())
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything in reverse order."""
        self._stop()

    def _start(self) -> None:
        options = self.options
        require_layout(
            self.state, ha=options.ha, outside=options.database_url is not None, fresh=options.fresh
        )  # fmt: skip
        Records(self.state).end_leftovers()
        end_leftover_servers(self.state.path / CLUSTER_DIRECTORY)
        if self.options.fresh:
            self.state.start_over()
        self.state.prepare()
        self.state.write(RESTARTS, {})
        self._records = Records(self.state)
        self._ports = Ports(self.state)
        self.endpoints = self._start_servers()
        self.authority = ensure_authority(self.state.secrets, self.options.trust_domain)
        with self._part("migrations", "the newest schema"):
            self._migrate(self.endpoints.database_url)
        self._write_endpoints()
        self._await_restore()
        self.admin_key = self._admin_key()
        self._start_children(self._control_plane(self.endpoints, self.authority))
        self._start_fleet()

    def _start_servers(self) -> Endpoints:
        options = self.options
        # Checked first, so that a busy port is found before anything starts, and before it is stored.
        if options.port is not None:
            require_free_port(options.port, "api")
        public_port = self._ports.of("api", options.wished_port, required=options.port)
        node_port = self._ports.of("node-api")
        require_free_port(public_port, "api")
        require_free_port(node_port, "node-api")
        backup_url = ""
        if options.ha:
            self.cluster = self._start_cluster()
            database_urls = self.cluster.make_databases(secret_files.role_passwords(self.state.secrets))
            database_url = self.cluster.url()
            self.cluster.keep_backup_slot(is_kept=options.backup_directory is not None)
            backup_url = prepare_backups(self.cluster, self.state.secrets, options.backup_directory)
        elif options.database_url is None:
            password = secret_files.postgres_password(self.state.secrets)
            postgres = LocalPostgres(self.state.path / "postgres", self._ports.of("postgres"), password)
            self._start_server(postgres, f"127.0.0.1:{postgres.port}", signal.SIGINT)
            database_urls = postgres.make_roles(secret_files.role_passwords(self.state.secrets))
            database_url = postgres.url()
            backup_url = prepare_backups(postgres, self.state.secrets, options.backup_directory)
        if options.nats_url is None:
            nats = nats_servers_of(self.state, self._ports, ha=options.ha)
            for server in nats:
                self._start_server(server, server.url, signal.SIGTERM)
        if options.temporal_address is None:
            temporal_ports = self._ports.of("temporal"), self._ports.of("temporal-metrics")
            temporal = LocalTemporal(self.state.path / "temporal", *temporal_ports)
            self._start_server(temporal, temporal.address, signal.SIGTERM)
        for name, address in (
            ("postgres", options.database_url), ("nats", options.nats_url), ("temporal", options.temporal_address),
        ):  # fmt: skip
            if address is not None:
                self._tell(Part(name, "outside", address.rpartition("@")[2]))
        return Endpoints(
            database_url=options.database_url or database_url,
            database_urls={} if options.database_url else database_urls,
            backup_database_url="" if options.database_url else backup_url,
            read_database_url=self.cluster.standby_url(database_urls) if self.cluster and options.read_standbys else "",
            nats_url=options.nats_url or addresses_of(nats, "operator"),
            relay_nats_url=options.nats_url or addresses_of(nats, "relay"),
            worker_nats_url=options.nats_url or addresses_of(nats, "worker"),
            stream_replicas=1 if options.nats_url else len(nats),
            temporal_address=options.temporal_address or temporal.address,
            public_port=public_port,
            node_port=node_port,
            console_port=self._ports.of("consoles"),
            trust_domain=options.trust_domain,
        )

    def _start_cluster(self) -> LocalCluster:
        """Three members at once: each needs another one to start."""
        cluster = cluster_of(self.state, self._ports)
        self._held.callback(cluster.stop)
        cluster.prepare()
        with ExitStack() as parts:
            for member in cluster.members:
                self._watch_over(member, signal.SIGKILL)
                part = parts.enter_context(self._part(member.name, f"127.0.0.1:{member.ports.postgres}", member.log))
                member.start()
                part.pid = member.process.pid if member.process else None
            cluster.wait_formed()
        return cluster

    def _watch_over(self, server: LocalServer, stop_signal: signal.Signals) -> None:
        server.spawned = lambda pid: self._records.add(record_of(server.name, pid, stop_signal))
        self._servers.append(server)

    def _start_server(self, server: LocalServer, where: str, stop_signal: signal.Signals) -> None:
        self._watch_over(server, stop_signal)
        with self._part(server.name, where, server.log) as part:
            server.start()
            part.pid = server.process.pid if server.process else None

    def _control_plane(self, endpoints: Endpoints, authority: Authority) -> list[ProcessPlan]:
        metrics = self._ports.of
        backups = []
        if self.options.backup_directory is not None and endpoints.backup_database_url:
            backups.append(backup_stream_plan(endpoints, self.options.backup_directory, metrics("backup-metrics")))
        return [
            *backups,
            orchestrator_plan("public", endpoints, authority, metrics("api-metrics")),
            orchestrator_plan("node", endpoints, authority, metrics("node-api-metrics")),
            issuer_plan(endpoints, authority, metrics("issuer-metrics")),
            relay_plan(endpoints, metrics("relay-metrics")),
            worker_plan(endpoints, authority, metrics("worker-metrics")),
            webhooks_plan(endpoints, authority, metrics("webhooks-metrics")),
        ]

    def _start_children(self, plans: list[ProcessPlan]) -> None:
        """Spawn all, then wait for each: Python takes a second to start, and they wait for one another if they must."""
        children = []
        for plan in map(self._as_asked, plans):
            child = ChildProcess(plan, self.state.log / f"{plan.name.replace(' ', '-')}.log")
            child.spawned = lambda pid, name=plan.name: self._records.add(record_of(name, pid, signal.SIGTERM))  # type: ignore[misc]
            self._children.append(child)
            children.append(child)
            child.spawn()
            pid = child.process.pid if child.process else None
            self._tell(Part(plan.name, "starting", self._where(plan), pid, log=child.log))
        for child in children:
            part = self.parts[child.name]
            try:
                blocked = child.wait_ready()
            except BaseException:
                part.state = "failed"
                self._tell(part)
                raise
            if blocked is None:
                self._ready(part)
            else:
                self._block(part, blocked)

    def _as_asked(self, plan: ProcessPlan) -> ProcessPlan:
        environment = {**plan.environment, **self.options.environment.get(plan.name, {})}
        return replace(plan, launcher=self.options.launcher, environment=environment)

    @staticmethod
    def _where(plan: ProcessPlan) -> str:
        metrics = f"metrics 127.0.0.1:{plan.metrics_port}"
        return f"{plan.where}, {metrics}" if plan.where else metrics

    def _start_fleet(self) -> None:
        guests = self.options.guests
        nodes = plan_fleet(self.options.agents) if guests is None else plan_guest_fleet()
        with self.admin() as admin:
            seed_catalogue(admin, self.state.images, None if guests is None else guests.image)
            self._start_children([self._agent(admin, node) for node in nodes])
            with self._part("fleet", f"{len(nodes)} nodes online"):
                wait_online(admin, {node.name for node in nodes})

    def _agent(self, admin: Client, planned: PlannedNode) -> ProcessPlan:
        """The agent's plan, with a fresh token: used if it has no certificate or its certificate has run out."""
        node = ensure_node(admin, planned)
        token = admin.create_enrolment_token(node.id, hardware_id=planned.hardware_id)
        token_file = self.state.secrets / f"enrolment-{planned.name}.token"
        secret_files.write_secret(token_file, token.token + "\n")
        directory = self.state.agent(planned.name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        port = self._ports.of(f"agent-{planned.name}-metrics")
        guests = self.options.guests
        return agent_plan(planned, self.endpoints, self.authority, directory, token_file, port, guests)

    def _write_endpoints(self) -> None:
        """Store the addresses for the CLI (`berth.cli.known_stack`): those with a password as secrets."""
        secret_files.write_secret(self.state.secrets / DATABASE_URL_FILE, self.endpoints.database_url + "\n")
        secret_files.write_secret(self.state.secrets / NATS_URL_FILE, self.endpoints.nats_url + "\n")
        addresses = {
            "api_url": self.endpoints.api_url,
            "node_api_url": self.endpoints.node_api_url,
            "temporal_address": self.endpoints.temporal_address,
        }
        self.state.write(ENDPOINTS_FILE, addresses)

    def _admin_key(self) -> str:
        path = self.state.secrets / ADMIN_KEY_FILE
        key = read_secret(path)
        if key is None or not admin_key_works(self.endpoints.database_url, key):
            key = create_admin_key(self.endpoints.database_url, "local stack")
            secret_files.write_secret(path, key + "\n")
        return key

    def _await_restore(self) -> None:
        part = Part("restore", "starting", "berth restore run")
        wait_until_restored(self.endpoints.database_url, lambda why: self._block(part, why), lambda: self._ready(part))

    def admin(self) -> Client:
        """A client with the stack's admin key."""
        return Client(self.endpoints.api_url, self.admin_key)

    def watch(self, stop: threading.Event) -> str | None:
        """Start again what dies; None once `stop` is set, or a sentence about the part that died too often."""
        parts: list[Supervised] = [
            SupervisedMember(server) if isinstance(server, Member) else SupervisedServer(server)
            for server in self._servers
        ]
        parts += [SupervisedProcess(child) for child in self._children]
        supervisor = Supervisor(parts, self.options.restarts, self._on_change)
        for part in self.parts.values():
            if part.state == "blocked":
                supervisor.expect(part.name)
        with StatusWatch(self.cluster) as statuses:
            while not stop.wait(WATCH_SECONDS):
                given_up = supervisor.look()
                if given_up is not None:
                    return given_up
                self._show_roles(statuses.take())
        return None

    def _show_roles(self, statuses: Mapping[str, MemberStatus]) -> None:
        for name, status in statuses.items():
            part = self.parts[name]
            where = f"{part.where.partition(',')[0]}, {status}"
            if part.state == "ready" and where != part.where:
                part.where = where
                self._tell(part)

    def _on_change(self, watched: Watched, change: Change) -> None:
        part = self.parts[watched.part.name]
        part.restarts, part.pid = watched.restarts, watched.part.pid
        if change == "starting":
            part.started = time.monotonic()
            restarts = self.state.read(RESTARTS)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            self.state.write(
                RESTARTS, {**restarts, part.name: {"count": watched.restarts, "at": at, "why": watched.why}}
            )
        if change == "ready":
            self._ready(part)
            return
        if change == "blocked":
            self._block(part, watched.why)
            return
        part.state = change
        self._tell(part)

    def _stop(self) -> None:
        try:
            # Agents first, all at once; then the control plane and the servers, last started first.
            agents = [child for child in reversed(self._children) if child.plan.module == "node_agent"]
            for child in agents:
                child.terminate()
            for child in agents:
                self._stop_child(child)
            for child in reversed(self._children):
                if child not in agents:
                    child.terminate()
                    self._stop_child(child)
            for server in reversed(self._servers):
                server.stop()
                self._stopped(server.name)
            if self._servers or self._children:
                self._records.clear()
        finally:
            self._held.close()

    def _stop_child(self, child: ChildProcess) -> None:
        child.wait_ended()
        self._stopped(child.name)

    def _stopped(self, name: str) -> None:
        part = self.parts.get(name)
        if part is not None and part.state != "failed":
            part.state = "stopped"
            self._tell(part)

    @contextmanager
    def _part(self, name: str, where: str, log: Path | None = None) -> Iterator[Part]:
        part = Part(name, "starting", where, log=log)
        self._tell(part)
        try:
            yield part
        except BaseException:
            part.state = "failed"
            self._tell(part)
            raise
        self._ready(part)

    def _block(self, part: Part, why: str) -> None:
        part.state, part.why = "blocked", why
        self._tell(part)

    def _ready(self, part: Part) -> None:
        part.state, part.why = "ready", ""
        part.seconds = time.monotonic() - part.started
        self._tell(part)

    def _tell(self, part: Part) -> None:
        self.parts[part.name] = part
        self._report(part)
