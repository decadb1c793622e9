"""A deployment whose secrets `deploy/make-secrets` made: listeners, an issuer and agents as processes, and probes without end."""

from __future__ import annotations

import datetime as dt
import itertools
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg

from berth.cli.deployment.node_trust import node_trust_findings
from berth.local.authority import Authority
from berth.local.fleet import PlannedNode
from berth.local.processes import (
    ChildProcess,
    Endpoints,
    ProcessPlan,
    agent_plan,
    issuer_plan,
    orchestrator_plan,
)
from berth.local.servers import free_port
from migrations.roles import Role
from node_agent.protocol import Envelope, TaskBody, TaskType
from orchestrator.tasks.signing import load_signer
from tests.api.calling import Caller, insert_admin_key, new_node, new_region
from tests.databases import as_role, as_roles
from tests.deploy import deployment
from tests.support.waiting import wait_for

NAMES = ("127.0.0.1", "localhost")
CERTIFICATE_SECONDS = 80
"""Certificates begin 60 s ago, so agents renew every 10 s."""
_QUEUE = """
insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at)
values (%s, %s, 1, 'diag.health_probe', %s, %s, now() - interval '1 minute', clock_timestamp() + interval '10 minutes')
"""
_UNFINISHED = """
select id, node_id, state, dispatch_count, clock_timestamp() - queued_at from node_tasks
where id = any(%s) and finished_at is null
"""
_FAILED = "select node_id, failure_code from node_tasks where id = any(%s) and state <> 'completed'"


@contextmanager
def repeating(act: Callable[[], object], *, every_seconds: float) -> Iterator[None]:
    """Call `act` again and again meanwhile, in a thread. Raises what it raised."""
    ended = threading.Event()

    def keep_busy() -> None:
        while not ended.wait(every_seconds):
            act()

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(keep_busy)
        try:
            yield
        finally:
            ended.set()
        busy.result()


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of a page, which succeeds."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


class Deployment:
    """The processes, and what an operator does."""

    def __init__(self, directory: Path, database_url: str) -> None:
        self.directory, self.database_url = directory, database_url
        self.secrets, self.root = directory / "secrets", directory / "root"
        self.make_secrets()
        self.database = psycopg.connect(database_url, autocommit=True)
        self.endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
        self.children: dict[str, ChildProcess] = {}
        self.nodes: dict[str, uuid.UUID] = {}
        self._fences = itertools.count(1)
        self._killed: set[uuid.UUID] = set()

    @property
    def files(self) -> Authority:
        """The files of make-secrets as the processes' plans name them."""
        secrets = self.secrets
        return Authority(
            ca_certificate=secrets / "node_ca_certificate.pem",
            ca_certificates=secrets / "node_ca_certificates.pem",
            ca_key=secrets / "node_ca_key.pem",
            deploy_ca_certificate=secrets / "deploy_ca_certificate.pem",
            deploy_ca_key=secrets / "deploy_ca_key.pem",
            listener_certificate=secrets / "node_listener_certificate.pem",
            listener_key=secrets / "node_listener_key.pem",
            console_certificate=secrets / "console_listener_certificate.pem",
            console_key=secrets / "console_listener_key.pem",
            task_signing_key=secrets / "task_signing_key.pem",
            task_verifying_keys=secrets / "task_verifying_keys.pem",
            webhook_keys=secrets / "webhook_keys",
            payload_keys=secrets / "temporal_payload_keys",
            root_key=self.root / "root_key.pem",
            root_keys=secrets / "root_public_keys.pem",
            key_set=secrets / "key_set.json",
        )

    def make_secrets(self) -> None:
        """Run deploy/make-secrets."""
        run("env", "CONSOLE_NAME=consoles.localhost", deployment.DEPLOY / "make-secrets", self.secrets, *NAMES)

    def sign_key_set(self) -> None:
        """Run deploy/sign-key-set."""
        run(deployment.DEPLOY / "sign-key-set", self.root, self.secrets)

    def start(self, plan: ProcessPlan, **environment: str) -> ChildProcess:
        """Start a process, or replace it by a new one with the present files."""
        if (running := self.children.get(plan.name)) is not None:
            running.terminate()
            running.wait_ended()
        plan = replace(plan, environment={**plan.environment, **environment})
        child = self.children[plan.name] = ChildProcess(plan, self.directory / f"{plan.name.replace(' ', '-')}.log")
        child.spawn()
        child.wait_ready()
        return child

    def start_issuer(self) -> None:
        """Start the issuer, or restart it."""
        seconds = str(CERTIFICATE_SECONDS)
        self.start(issuer_plan(self.endpoints, self.files, free_port()), BERTH_NODE_CERTIFICATE_SECONDS=seconds)

    def start_control_plane(self) -> None:
        """The listeners and the issuer."""
        self.start(orchestrator_plan("public", self.endpoints, self.files, free_port()))
        self.start(orchestrator_plan("node", self.endpoints, self.files, free_port()))
        self.start_issuer()

    def add_agents(self, count: int) -> None:
        """Register nodes and start their agents."""
        with httpx.Client(base_url=self.endpoints.api_url) as http:
            admin = Caller(http, insert_admin_key(self.database_url))
            region = new_region(admin)
            for _ in range(count):
                node = new_node(admin, region)
                token = admin.make(f"/admin/nodes/{node['id']}/enrolment-token", {})["token"]
                self._start_agent(node["name"], token)
                self.nodes[node["name"]] = uuid.UUID(node["id"])

    def _start_agent(self, name: str, token: str) -> None:
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        token_file = self.directory / f"{name}.token"
        token_file.write_text(token)
        planned = PlannedNode(name, "eu-1", "gpu_slice")
        plan = agent_plan(planned, self.endpoints, self.files, directory, token_file, free_port())
        self.start(
            plan, BERTH_AGENT_DRIVER="noop", BERTH_AGENT_HEARTBEAT_SECONDS="0.3", BERTH_AGENT_WAIT_SECONDS="1"
        )  # fmt: skip

    def restart_agent(self, name: str) -> None:
        """End an agent as a crash would, and start it again."""
        child = self.children[f"agent {name}"]
        self._killed.add(self.nodes[name])
        child.kill()
        child.wait_ended()
        child.spawn()
        child.wait_ready()

    def serial(self) -> int:
        """The serial of the signed key set."""
        return int((self.root / "key_set_serial").read_text())

    def pids(self, *names: str) -> list[int]:
        """The processes that run under these names."""
        found = [self.children[name].process for name in names]
        return [process.pid for process in found if process is not None and process.poll() is None]

    def queue_probe(self, node: str) -> uuid.UUID:
        """A task that the worker's present key signs."""
        signer = load_signer(self.files.task_signing_key)
        return self.queue(node, signer.key_id, signer.sign)

    def queue(self, node: str, key_id: str, sign: Callable[[TaskBody], Envelope]) -> uuid.UUID:
        """A task for a node with this key id and signature."""
        fence = next(self._fences)
        now = dt.datetime.now(dt.UTC)
        body = TaskBody(
            task_id=uuid.uuid4(), type=TaskType.HEALTH_PROBE, node_id=self.nodes[node], node_epoch=1, allocation_id=None,
            fence=fence, parameters={}, not_before=now - dt.timedelta(minutes=1),
            expires_at=now + dt.timedelta(minutes=10), key_id=key_id,
        )  # fmt: skip
        values = (body.task_id, self.nodes[node], fence, sign(body).model_dump_json())
        self.database.execute(_QUEUE, values)
        return body.task_id

    def state(self, task: uuid.UUID) -> str:
        """A task's state."""
        return str(self.one("select state from node_tasks where id = %s", task))

    def one(self, query: str, *values: object) -> object:
        """One value."""
        row = self.database.execute(query.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def works(self) -> None:
        """Each node executes one more task now."""
        tasks = [self.queue_probe(node) for node in self.nodes]
        wait_for(lambda: all(self.state(task) == "completed" for task in tasks), "each node to execute a task")

    def findings(self) -> dict[str, tuple[str, str]]:
        """What `berth doctor` says of the nodes' keys."""
        found = node_trust_findings(as_role(self.database_url, Role.OPERATOR))
        return {one.subject: (one.verdict, one.detail) for one in found}

    def wait_for_key_set(self, serial: int) -> None:
        """Wait as the pages say: until all nodes use the set."""
        detail = f"{len(self.nodes)} of {len(self.nodes)} nodes with a certificate use serial {serial}"
        wait_for(lambda: self.findings()["node key sets"] == ("ok", detail), f"all nodes to use key set {serial}")

    @contextmanager
    def tasks_throughout(self) -> Iterator[None]:
        """Hand out tasks all the time meanwhile; each of them completes, and no node enrols again.

        A probe during which its agent was killed is reported as interrupted: no agent runs a probe a second time.
        """
        queued: list[uuid.UUID] = []
        self._killed.clear()
        with repeating(lambda: queued.extend(self.queue_probe(node) for node in self.nodes), every_seconds=0.5):
            yield
        assert queued
        try:
            wait_for(lambda: not self._unfinished(queued), "each task of the rotation to end")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self._unfinished(queued)}") from late
        for node, code in self.database.execute(_FAILED, (queued,)).fetchall():
            assert (code, node in self._killed) == ("interrupted", True), f"a task of node {node} failed: {code}"
        assert self.one("select max(epoch) from nodes") == 1, "no node enrolled again"

    def _unfinished(self, tasks: list[uuid.UUID]) -> list[tuple[object, ...]]:
        return self.database.execute(_UNFINISHED, (tasks,)).fetchall()

    def stop(self) -> None:
        """End every process."""
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            child.wait_ended()
        self.database.close()
