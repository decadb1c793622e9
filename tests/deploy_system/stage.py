"""A control plane of real processes for deploy systems: public listener over TLS, node listener over mTLS, issuer.

The worker's part is driven step by step in this process: `advance` signs or concludes the task of a node.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import signal
import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, ProcessPlan, issuer_plan, orchestrator_plan
from berth.local.servers import free_port
from berth.local.state import write_whole
from node_agent.wire.deploy_medium import DeployMedium, read_medium
from orchestrator.crash_points import CrashPoint
from orchestrator.database.calls import CallGroup
from orchestrator.nodes.commands.deploy_tasks import Advanced, advance_deploy_task
from orchestrator.operations.execution import Context
from orchestrator.tasks.signing import load_signer
from orchestrator.tasks.store.dispatch import Dispatched, lease_queued_tasks
from tests.allocations.seeding import make_context
from tests.api.calling import Caller, insert_admin_key, signing_request
from tests.databases import as_roles
from tests.placement.fleet import ADD_NODES, Fleet
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.testbuild.killing import REACHED
from worker.deploy_systems.sweeping import sweep_deploy_tasks
from worker.sweepers.expired_tasks import expire_overdue_tasks

Done = TypeVar("Done")

SMBIOS = uuid.UUID("4c4c4544-0044-4810-8031-b4c04f4d3732")
MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
HELLO = {"agent_version": "1", "boot_id": str(uuid.UUID(int=5)), "kernel": "6.1.0"}
TOPOLOGY = {
    "driver": "redfish", "processors": {"architecture": "x86_64"},
    "nics": [{"name": "eth0", "mac": MAC}, {"name": "eth1", "mac": OTHER_MAC}],
    "disks": [{"name": "nvme0n1", "serial": "S1", "size_bytes": 4096}],
}  # fmt: skip
INSPECTED = {"smbios_uuid": str(SMBIOS), "topology": TOPOLOGY}


@dataclass
class Machine:
    """A machine with a medium, as it presents itself."""

    medium: DeployMedium
    public_url: str
    node_url: str
    ca_file: str
    smbios_uuid: str = str(SMBIOS)
    macs: list[str] = field(default_factory=lambda: [MAC, OTHER_MAC])
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def body(self, **changes: Any) -> dict[str, Any]:
        """The request for its certificate."""
        asked = {
            "token": self.medium.token, "deploy_epoch": self.medium.deploy_epoch,
            "machine": {"smbios_uuid": self.smbios_uuid, "macs": self.macs}, "csr_pem": signing_request(self.key),
        }  # fmt: skip
        return {**asked, **changes}

    def enrol(self, **changes: Any) -> httpx.Response:
        """Ask for its certificate."""
        with httpx.Client(base_url=self.public_url, verify=ssl.create_default_context(cafile=self.ca_file)) as http:
            return http.post("/api/v1/deploy-systems/enroll", json=self.body(**changes), timeout=60)

    def enrolled(self, directory: Path) -> Enrolled:
        """Enrol, and connect to the node listener."""
        answer = self.enrol()
        assert answer.status_code == 200, answer.text
        return Enrolled(self, answer.json(), connected(self, answer.json()["certificate_pem"], directory))


def connected(machine: Machine, certificate_pem: str, directory: Path) -> httpx.Client:
    """A connection to the node listener with this certificate and the machine's key."""
    path = directory / f"{uuid.uuid4()}.pem"
    key = machine.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    path.write_text(certificate_pem + key)
    context = ssl.create_default_context(cafile=machine.ca_file)
    context.load_cert_chain(path)
    return httpx.Client(base_url=machine.node_url, verify=context, timeout=60)


@dataclass
class Enrolled:
    """A deploy system with its certificate."""

    machine: Machine
    credentials: dict[str, Any]
    http: httpx.Client

    def hello(self, **changes: Any) -> httpx.Response:
        """Say that it has started."""
        return self.http.post("/deploy/v1/hello", json={**HELLO, **changes})

    def wait(self, *known: str) -> httpx.Response:
        """Ask for its task, without waiting."""
        return self.http.get("/deploy/v1/tasks/wait", params={"timeout_seconds": 0, "known": list(known)})

    def task(self) -> dict[str, Any]:
        """Its task, opened without a check of the signature."""
        (handed,) = self.wait().json()["tasks"]
        content: dict[str, Any] = json.loads(base64.b64decode(handed["envelope"]["payload"]))
        return content

    def report(self, task: dict[str, Any], result: dict[str, Any] | None = None, **changes: Any) -> httpx.Response:
        """Report the outcome of a task."""
        if "failure" in changes:
            changes["result"] = None
        body = {"fence": task["fence"], "outcome": "completed", "result": result or INSPECTED}
        return self.http.post(f"/deploy/v1/tasks/{task['task_id']}/result", json={**body, **changes})


class Stage:
    """The processes, their database and an operator."""

    def __init__(self, directory: Path, database_url: str) -> None:
        self.directory, self.database_url = directory, database_url
        self.fleet = Fleet(database_url)
        self.files = ensure_authority(directory, "berth.local")
        self.endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
        self.public_url = f"https://localhost:{self.endpoints.public_port}"
        self.children = {
            "public": self._child(
                "public",
                BERTH_PUBLIC_TLS_CERTIFICATE_FILE=str(self.files.listener_certificate),
                BERTH_PUBLIC_TLS_KEY_FILE=str(self.files.listener_key),
                BERTH_PUBLIC_CA_FILE=str(self.files.ca_certificate),
                BERTH_PUBLIC_API_URL=self.public_url,
                BERTH_CERTIFICATE_WAIT_SECONDS="30",
                BERTH_FAILED_ATTEMPTS_MAX="0",
            ),
            "node": self._child("node"),
            "issuer": self._process("issuer", issuer_plan(self.endpoints, self.files, free_port())),
        }
        self.http = httpx.Client(
            base_url=self.public_url,
            verify=ssl.create_default_context(cafile=str(self.files.ca_certificate)),
            timeout=60,
        )
        self.admin = Caller(self.http, insert_admin_key(database_url))

    def _child(self, listen: Any, **settings: str) -> ChildProcess:
        plan = orchestrator_plan(listen, self.endpoints, self.files, free_port())
        return self._process(listen, replace(plan, environment={**plan.environment, **settings}))

    def _process(self, name: str, plan: ProcessPlan) -> ChildProcess:
        """Of the test build, which dies where a file says."""
        environment = {**plan.environment, "BERTH_CRASH_AT_FILE": str(self._crash_file(name))}
        return ChildProcess(
            replace(plan, environment=environment, launcher="tests.testbuild"), self.directory / f"{name}.log"
        )

    def _crash_file(self, name: str) -> Path:
        return self.directory / f"crash-at-{name}"

    @contextmanager
    def dying(self, name: str, point: CrashPoint) -> Iterator[None]:
        """A process that dies at the point because of what the block requests, and is started again after it."""
        file, child = self._crash_file(name), self.children[name]
        write_whole(file, f"{point}:1\n")
        try:
            yield
            assert child.process is not None
            assert child.process.wait(WAIT_SECONDS_MAX) == -signal.SIGKILL
        finally:
            file.unlink()
            child.kill()
            child.spawn()
            child.wait_ready()
        assert REACHED.format(f"{point}:1") in child.log.read_text()

    @contextmanager
    def running(self) -> Iterator[Stage]:
        """Run the processes in the block."""
        for child in self.children.values():
            child.spawn()
        try:
            for child in self.children.values():
                child.wait_ready()
            yield self
        finally:
            for child in self.children.values():
                child.terminate()
            for child in self.children.values():
                child.wait_ended()
            self.http.close()

    def node(self, state: str = "cordoned") -> uuid.UUID:
        """A bare-metal node that no test has used before."""
        self.fleet.connection.execute(ADD_NODES, (1, "baremetal"))
        row = self.fleet.connection.execute(
            "select id from nodes where shape = 'baremetal' order by unit_base desc limit 1"
        ).fetchone()
        assert row is not None
        if state != "active":
            self.fleet.connection.execute("update nodes set state = %s where id = %s", (state, row[0]))
        found: uuid.UUID = row[0]
        return found

    def ask_permit(self, node: uuid.UUID, **changes: Any) -> httpx.Response:
        """Ask for a permission."""
        network = {"mac": MAC, "address": "192.0.2.7/24", "gateway": "192.0.2.1"}
        body = {"network": network, "smbios_uuid": str(SMBIOS), **changes}
        answer: httpx.Response = self.admin.call("POST", f"/admin/nodes/{node}/deploy-system", body)
        return answer

    def permit(self, node: uuid.UUID, **changes: Any) -> Machine:
        """Permit a deploy system; the machine that it is for."""
        answer = self.ask_permit(node, **changes)
        assert answer.status_code == 201, answer.text
        medium = read_medium(answer.json()["medium"].encode())
        return Machine(medium, self.public_url, self.endpoints.node_api_url, str(self.files.ca_certificate))

    def revoke(self, node: uuid.UUID) -> httpx.Response:
        """End its permission."""
        answer: httpx.Response = self.admin.call("DELETE", f"/admin/nodes/{node}/deploy-system")
        return answer

    def inspect(self, node: uuid.UUID, **body: Any) -> httpx.Response:
        """Ask for an inspection."""
        answer: httpx.Response = self.admin.call("POST", f"/admin/nodes/{node}/deploy-system/inspect", body)
        return answer

    def started(self, node: uuid.UUID) -> Enrolled:
        """A deploy system of the node that has said hello."""
        system = self.permit(node).enrolled(self.directory)
        assert system.hello().status_code == 200
        return system

    def advance(self, node: uuid.UUID) -> Advanced | None:
        """What a worker does for the open task of the node."""

        return self._as_worker(lambda context: advance_deploy_task(context, node))

    def lease_as_agent(self, node: uuid.UUID, serial: str) -> list[Dispatched]:
        """What the agent of the node would be sent with this certificate."""

        async def leased(context: Context) -> list[Dispatched]:
            # Not by the command, which names only nodes that something is queued for.
            async with context.database.function_call(CallGroup.NODES) as call:
                return await lease_queued_tasks(call, {node: serial}, batch_max=10)

        return self._as_worker(leased)

    def sweep(self) -> None:
        """One round of the sweepers that end what is overdue."""

        async def both(context: Context) -> None:
            await expire_overdue_tasks(context, 0.0, 100)
            await sweep_deploy_tasks(context, 100)

        self._as_worker(both)

    def _as_worker(self, work: Callable[[Context], Awaitable[Done]]) -> Done:
        async def done() -> Done:
            context = replace(make_context(self.database_url), signer=load_signer(self.files.task_signing_key))
            try:
                return await work(context.for_platform())
            finally:
                await context.database.close()

        return asyncio.run(done())

    def shown(self, node: uuid.UUID) -> dict[str, Any]:
        """The node's deploy system as operators see it."""
        found: dict[str, Any] = self.admin.get(f"/admin/nodes/{node}/deploy-system")
        return found

    def listed(self, node: uuid.UUID) -> dict[str, Any]:
        """The only task of the node."""
        (found,) = self.admin.get(f"/admin/nodes/{node}/deploy-system/tasks")["items"]
        return dict(found)

    def metric(self, process: str, sample: str) -> float:
        """The value of a metric with its labels, as a process exposes it; 0 before it is first counted."""
        text = httpx.get(f"http://127.0.0.1:{self.children[process].plan.metrics_port}/metrics", timeout=60).text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{sample} "))

    def facts(self, node: uuid.UUID) -> list[Any]:
        """Everything of the permissions but the counter of refusals, to compare."""
        rows = self.fleet.connection.execute(
            "select id, deploy_epoch, used_at, key_sha256, serial, ended_at, hello_at from deploy_systems where node_id = %s"
            " order by deploy_epoch",
            (node,),
        )
        return rows.fetchall()

    def audited(self, node: uuid.UUID, action: str) -> list[Any]:
        """Details of the node's audit rows of this action."""
        rows = self.fleet.connection.execute(
            "select detail from audit where subject = %s and action = %s order by id", (f"nodes/{node}", action)
        )
        return [row[0] for row in rows.fetchall()]


def uri_of(certificate_pem: str) -> list[str]:
    """The URIs in a certificate."""
    names = x509.load_pem_x509_certificate(certificate_pem.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def forged(ca_key_pem: bytes, ca_pem: bytes, uri: str, serial: int, key: ec.EllipticCurvePrivateKey) -> str:
    """A certificate as the owner of a CA's key could make it: any name, any serial."""
    ca = x509.load_pem_x509_certificate(ca_pem)
    signer = load_pem_private_key(ca_key_pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()
