"""Sites on real processes: PostgreSQL, public and node listener, agents of sites by mTLS, and stub BMCs over HTTPS.

Issuer and worker run their rounds in a thread of the test, on their own database roles.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from prometheus_client.parser import text_string_to_metric_families

from berth.local.authority import Authority, ensure_authority
from berth.local.processes import ChildProcess, Endpoints, ProcessPlan, orchestrator_plan
from berth.local.servers import LocalPostgres, free_port
from berth.process.sealed_passwords import Purpose, seal_to_all
from migrations.roles import Role
from node_agent.redfish.clock import SystemClock
from orchestrator.app import build_issuer
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits
from orchestrator.tasks.signing import load_signer
from tests.api.calling import Caller, insert_admin_key
from tests.databases import as_role, as_roles, copied_database
from tests.placement.fleet import ADD_NODES, Fleet
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.server import certificate, server_context, serving
from tests.support.bmc.service import StubService
from tests.support.public_api import issuer_settings_over
from tests.support.waiting import WAIT_SECONDS_MAX, pause, wait_for
from worker.consoles.sweeping import issue_consoles
from worker.deploy_systems.sweeping import sweep_deploy_runs, sweep_deploy_tasks
from worker.sites.sweeping import sweep_bmc_liveness, sweep_bmc_tasks, sweep_firmware_updates
from worker.sweepers.maintenance import sweep_maintenance

LEASE_SECONDS = 3
LOOPS = {
    "self._keep_lease": "node_agent.site.agent:SiteAgent._keep_lease",
    "self._keep_identity": "node_agent.site.agent:SiteAgent._keep_identity",
    "self._act": "node_agent.site.agent:SiteAgent._act",
    "self._runner.serve": "node_agent.site.runner:Runner.serve",
    "self._bmc_liveness.run": "node_agent.site.bmc_liveness:BmcLiveness.run",
}
"""Each loop of a site's agent, as it is written where it is started, and the function that fails in it."""
FIRST_PASSWORD = "first-secret"
USER = "berth"

T = TypeVar("T")


class Background:
    """One event loop in a thread, for what a test serves itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(WAIT_SECONDS_MAX)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_SECONDS_MAX)


@dataclass
class Machine:
    """A node with a stub BMC."""

    node_id: str
    service: StubService
    url: str
    pin: str
    ended: asyncio.Event

    @property
    def password(self) -> str:
        return self.service.machine.passwords[USER]

    def logins(self) -> int:
        """Requests that reached the BMC so far, but for those of its service root, which need no login."""
        return sum(line != "GET /redfish/v1/" for line in self.service.requests)


class Agent:
    """`python -m node_agent --site` of the test build on one state directory."""

    def __init__(self, stage: Stage, name: str, token: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        directory.mkdir(parents=True)
        self.log = directory / "agent.log"
        token_file = directory / "token"
        token_file.write_text(token)
        self.state_dir = directory / "state"
        environment = {
            "BERTH_API_URL": stage.api_url,
            "BERTH_AGENT_STATE_DIR": str(self.state_dir),
            "BERTH_ROOT_KEYS_FILE": str(stage.authority.root_keys),
            "BERTH_ENROLMENT_TOKEN_FILE": str(token_file),
            "BERTH_ENROLMENT_HTTP_ALLOWED": "true",
            "BERTH_AGENT_WAIT_SECONDS": "5",
            **stage.agent_settings(),
            **settings,
        }
        self.media_url = environment.get("BERTH_SITE_MEDIA_URL", "")
        self._plan = ProcessPlan(f"site agent {name}", "node_agent", free_port(), environment, ("--site",))
        self.child = ChildProcess(self._plan, self.log)

    def start(self, crash_at: str | None = None, dies_in: str | None = None) -> None:
        """Start it; `crash_at`: the label and number at which it kills itself, `dies_in`: the function that fails in it."""
        build = "tests.testbuild" if dies_in is None else "tests.dying"
        command = [sys.executable, "-m", build, "node_agent", "--site"]
        with self.log.open("ab") as log:
            environment = {**_inherited(), **self._plan.environment, "BERTH_METRICS_PORT": str(self._plan.metrics_port)}
            if crash_at is not None:
                environment["BERTH_CRASH_AT"] = crash_at
            if dies_in is not None:
                environment["BERTH_DIES_IN"] = dies_in
            self.child.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self) -> None:
        assert self.child.process is not None
        self.child.process.kill()
        self.child.process.wait(WAIT_SECONDS_MAX)

    def stop(self) -> int:
        assert self.child.process is not None
        self.child.process.terminate()
        return self.child.process.wait(WAIT_SECONDS_MAX)

    def died(self) -> bool:
        assert self.child.process is not None
        return self.child.process.poll() is not None

    def serves(self) -> bool:
        """Whether it has served; fails with its log if it has ended."""
        assert not self.died(), self.log.read_text(errors="replace")[-2000:]
        return self.says('"event":"serving"')

    def metric(self, name: str, **labels: str) -> float:
        """The value of a sample at the agent's own metrics; 0.0 if it has none yet."""
        return scraped(self._plan.metrics_port, name, **labels)

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text(errors="replace")


def scraped(port: int, name: str, **labels: str) -> float:
    """The value of a sample at a process's metrics; 0.0 if it has none yet."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_SECONDS_MAX).text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return next((one.value for one in samples if (one.name, one.labels) == (name, labels)), 0.0)


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}


@dataclass
class Site:
    """A site, its recovery key and its agents."""

    stage: Stage
    id: str
    name: str
    recovery: X25519PrivateKey
    agents: list[Agent] = field(default_factory=list)

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.stage.admin.get(f"/admin/sites/{self.id}")
        return found

    def agent(self, name: str, *, start: bool = True, crash_at: str | None = None, **settings: str) -> Agent:
        """A new agent of this name; it has enrolled and sent its sealing key if it is started."""
        made = self.stage.admin.make(f"/admin/sites/{self.id}/agents", {"name": name})
        agent = Agent(self.stage, name, made["token"], self.stage.directory / f"{self.name}-{name}", settings)
        self.agents.append(agent)
        if start:
            agent.start(crash_at)
            wait_for(agent.serves, f"agent {name} serves", 30)
        return agent

    def holder(self) -> str | None:
        """The name of the agent that holds the lease."""
        found = self.stage.fleet.one(
            "select max(a.name) from site_agents a join sites s on s.lease_agent = a.id where s.id = %s"
            " and s.lease_until > clock_timestamp()", self.id,
        )  # fmt: skip
        return None if found is None else str(found)

    def wait_for_holder(self, name: str) -> None:
        wait_for(lambda: self.holder() == name, f"{name} holds the lease", 30)

    def recipients(self) -> dict[uuid.UUID, bytes]:
        found = self.read()
        keys = {
            uuid.UUID(one["id"]): bytes.fromhex(one["sealing_key"]) for one in found["agents"] if one["sealing_key"]
        }
        return {uuid.UUID(self.id): bytes.fromhex(found["recovery_key"]), **keys}

    def sealed(self, node_id: str, password: str, generation: int = 1) -> dict[str, Any]:
        purpose = Purpose(uuid.UUID(self.id), uuid.UUID(node_id), generation)
        copies = seal_to_all(password, purpose, self.recipients())
        return {
            "generation": generation,
            "copies": [{"recipient": str(one), "text": text} for one, text in copies.items()],
        }

    def put_bmc(self, machine: Machine, password: str = FIRST_PASSWORD, **more: Any) -> dict[str, Any]:
        body = {
            "site_id": self.id, "url": machine.url, "certificate_sha256": machine.pin, "username": USER,
            "password": self.sealed(machine.node_id, password), **more,
        }  # fmt: skip
        found: dict[str, Any] = self.stage.admin.put(f"/admin/nodes/{machine.node_id}/bmc", body)
        return found

    def stop(self) -> None:
        for agent in self.agents:
            if agent.child.process is not None and not agent.died():
                agent.kill()


class Stage:
    """Everything but sites and machines, which each test makes."""

    round_seconds = 0.2
    """Between two rounds of the worker's sweepers."""

    def __init__(self, url: str, directory: Path, console_port: int = 0) -> None:
        self.url = url
        self.directory = directory
        self.fleet = Fleet(url)
        self.fleet.connection.autocommit = True
        self.authority: Authority = ensure_authority(directory, "berth.local")
        self.endpoints = Endpoints(url, "", "", free_port(), free_port(), as_roles(url), console_port=console_port)
        self.background = Background()
        self._node_plan = orchestrator_plan("node", self.endpoints, self.authority, free_port())
        self._children = [
            ChildProcess(
                orchestrator_plan("public", self.endpoints, self.authority, free_port()), directory / "api.log"
            ),
            ChildProcess(self._node_plan, directory / "node.log"),
        ]
        self._stop = asyncio.Event()
        self.api_url = self.endpoints.api_url
        self.medium: Path | None = None
        """The deploy medium that agents serve which are made from now on."""
        self.http = httpx.Client(base_url=self.api_url, timeout=WAIT_SECONDS_MAX)
        self.admin = Caller(self.http, insert_admin_key(url))
        self._numbers = 0

    def start(self) -> None:
        for child in self._children:
            child.spawn(self.settings())
        self._rounds = self.background.start(self._serve())
        for child in self._children:
            child.wait_ready()

    def settings(self) -> dict[str, str]:
        """Of both listeners."""
        return {
            "BERTH_SITE_LEASE_SECONDS": str(LEASE_SECONDS), "BERTH_CERTIFICATE_WAIT_SECONDS": "30",
            "BERTH_PUBLIC_API_URL": "https://api.example", "BERTH_PUBLIC_CA_FILE": str(self.authority.ca_certificate),
        }  # fmt: skip

    def agent_settings(self) -> dict[str, str]:
        """Of one more agent, which serves the medium at its own port."""
        if self.medium is None:
            return {}
        port = free_port()
        return {
            "BERTH_SITE_MEDIA_URL": f"http://127.0.0.1:{port}", "BERTH_SITE_MEDIA_PORT": str(port),
            "BERTH_SITE_MEDIA_HOST": "127.0.0.1", "BERTH_DEPLOY_MEDIUM_FILE": str(self.medium),
            "BERTH_BMC_QUEUE_SECONDS": "1",
        }  # fmt: skip

    def close(self) -> None:
        self.background.loop.call_soon_threadsafe(self._stop.set)
        with contextlib.suppress(Exception):  # a test has failed with it
            self._rounds.result(WAIT_SECONDS_MAX)
        self.http.close()
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait_ended()
        self.background.close()
        self.fleet.connection.close()

    async def _serve(self) -> None:
        """Rounds of the issuer and of the worker's sweepers."""
        issuer, issuing = build_issuer(issuer_settings_over(self.url, self.directory))
        database = connect_database(
            as_role(self.url, Role.WORKER), pool_size=2, reserve_size=1, lock_timeout_seconds=5,
            transaction_timeout_seconds=30, application="berth-worker",
        )  # fmt: skip
        context = Context(database, Limits(), load_signer(self.authority.task_signing_key))
        running = asyncio.create_task(issuer.run())
        while not self._stop.is_set():
            for sweep in (sweep_bmc_tasks, sweep_firmware_updates, sweep_deploy_tasks, sweep_deploy_runs):
                await sweep(context, 100)
            await sweep_bmc_liveness(context, 2.0, 100)
            await sweep_maintenance(context, 3_600.0, 100)
            await issue_consoles(context, 15.0, 100)
            await pause(self.round_seconds)
        issuer.stop()
        await running
        await issuing.close()
        await database.close()

    def metric(self, name: str) -> float:
        """The value of a sample at the node listener's metrics."""
        return scraped(self._node_plan.metrics_port, name)

    def site(self) -> Site:
        self._numbers += 1
        recovery = X25519PrivateKey.generate()
        name = f"site-{self._numbers}"
        key = recovery.public_key().public_bytes_raw().hex()
        made = self.admin.make("/admin/sites", {"name": name, "recovery_key": key})
        return Site(self, made["id"], name, recovery)

    def node(self) -> str:
        """A node that no test has used before."""
        self.fleet.connection.execute(ADD_NODES, (1, "baremetal"))
        return str(self.fleet.one("select id from nodes order by unit_base desc limit 1"))

    @contextlib.contextmanager
    def machine(self, options: Options | None = None) -> Iterator[Machine]:
        """A node and its BMC, served until the block ends."""
        service = StubService(StubMachine(SystemClock(), options or Options()))
        ready: Future[int] = Future()
        ended = asyncio.Event()

        async def serve() -> None:
            async with serving(service, server_context(1), 0) as port:
                ready.set_result(port)
                await ended.wait()

        served = self.background.start(serve())
        port = ready.result(WAIT_SECONDS_MAX)
        try:
            yield Machine(self.node(), service, f"https://127.0.0.1:{port}", certificate(1)[2], ended)
        finally:
            self.background.loop.call_soon_threadsafe(ended.set)
            served.result(WAIT_SECONDS_MAX)

    def bmc(self, node_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"/admin/nodes/{node_id}/bmc")
        return found

    def request(self, node_id: str, kind: str) -> dict[str, Any]:
        """Request a task; returns the BMC."""
        found: dict[str, Any] = self.admin.make(f"/admin/nodes/{node_id}/bmc/{kind}")
        return found

    def done(self, node_id: str, kind: str) -> dict[str, Any]:
        """Request a task and wait for its end; returns the BMC."""
        self.request(node_id, kind)
        return self.ended(node_id)

    def ended(self, node_id: str) -> dict[str, Any]:
        """The BMC once its task has ended."""
        wait_for(lambda: self._has_ended(node_id), "the task ends", 40)
        return self.bmc(node_id)

    def _has_ended(self, node_id: str) -> bool:
        if self._rounds.done():
            self._rounds.result()
        # Not by the API: what is asked 50 times a second is the processor time of make test.
        return self.fleet.one("select count(*) from bmc_tasks where node_id = %s and outcome is null", node_id) == 0


@contextlib.contextmanager
def staged(server: LocalPostgres, template: str, directory: Path) -> Iterator[Stage]:
    """A running stage over a new database."""
    with copied_database(server, template) as url:
        stage = Stage(url, directory)
        stage.start()
        try:
            yield stage
        finally:
            stage.close()
