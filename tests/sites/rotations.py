"""Agents of a site in this process that die or stop at any step, with the real commands and Redfish client, and a stub BMC.

A step is right before a request to the BMC, a password's way to the control plane, or a report. What a step has done is
what the next one begins with, so these are all the states in which a process can die.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from prometheus_client import CollectorRegistry

from berth.process.sealed_passwords import Purpose, seal_to_all, unseal
from migrations.roles import Role
from node_agent.clock import ServerClock
from node_agent.protocol import Envelope, TaskBody, open_envelope
from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import Bmc, BmcAccess
from node_agent.site.bmcs import DEADLINES, Guard, GuardedTransport
from node_agent.site.effects import BmcEffects, Order, StoreRefused
from node_agent.site.images import SiteImages
from node_agent.site.lease import Lease
from node_agent.site.media import MediaPlace, SiteMedia
from node_agent.site.ports import SitePorts
from node_agent.switches.contract import Switch
from node_agent.switches.placing import PlacingTimes
from node_agent.wire.firmware import StoredProgress, StoreProgress
from node_agent.wire.sites import (
    BmcTaskAnswer,
    BmcTaskKind,
    BmcTaskParameters,
    BmcTaskReport,
    LeaseRequest,
    StoredPassword,
    StorePassword,
)
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits, transact
from orchestrator.problems import Invalid
from orchestrator.sites.commands.leases import lease_bmc_tasks, take_site_lease
from orchestrator.sites.commands.reports import accept_bmc_report, keep_progress, store_password
from orchestrator.sites.commands.tasks import advance_bmc_task
from orchestrator.sites.store import bmc_tasks
from orchestrator.tasks.signing import TaskSigner
from tests.databases import as_role
from tests.placement.fleet import ADD_NODES, Fleet
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.machine import StubMachine
from tests.support.bmc.service import StubService
from tests.support.bmc.transport import StubTransport

FIRST_PASSWORD = "first-secret"
USER = "berth"
_SITE = "insert into sites (name, recovery_key) values ('a-site', %s) returning id"
_AGENT = """
insert into site_agents (site_id, name, state, epoch, sealing_key, sealing_key_epoch)
values (%s, %s, 'active', 1, %s, 1) returning id
"""
_CERTIFICATE = """
insert into site_agent_certificates (serial, agent_id, agent_epoch, key_sha256, not_before, not_after)
values (%s, %s, 1, sha256('k'), clock_timestamp(), clock_timestamp() + interval '1 day')
"""
_BMC = """
insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)
values (%s, %s, 'https://192.0.2.7', sha256('c'), 'berth', 1, 'test')
"""
_ENDED = "update sites set lease_until = clock_timestamp() - interval '1 s' where lease_until is not null"
PATIENT = replace(DEADLINES, poll_seconds=10)
"""Fewer reads of the same state."""
Step = Callable[[], Awaitable[None]]


class Killed(BaseException):
    """The process is gone: no handler of it runs."""


@dataclass
class Agent:
    """An agent of the site: its key, and the lease as its process knows it by a clock that the test moves.

    `medium`: the file of the deploy medium that it serves; None: none.
    """

    id: uuid.UUID
    key: X25519PrivateKey
    serial: str
    run_id: uuid.UUID = field(default_factory=uuid.uuid4)
    seconds: float = 0.0
    medium: Path | None = None

    def __post_init__(self) -> None:
        self.lease = Lease(lambda: self.seconds)
        place = None if self.medium is None else MediaPlace(f"http://{self.serial}", "127.0.0.1", 0, self.medium)
        self.media = SiteMedia(place, self.lease, CollectorRegistry())


class Stepping(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx.AsyncBaseTransport, step: Step) -> None:
        self._transport, self._step = transport, step

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._step()
        return await self._transport.handle_async_request(request)


class Rotations:
    """One site with two agents and a recovery key; each machine has its BMC."""

    def __init__(self, fleet: Fleet, context: Context, key: Ed25519PrivateKey, medium: Path | None) -> None:
        self.fleet, self.context, self.signing_key, self._medium = fleet, context, key, medium
        self.worker = self.api = context
        self.switches: dict[str, Switch] = {}
        self.settle_seconds = 0.0
        self.recovery = X25519PrivateKey.generate()
        self.site_id = uuid.UUID(str(fleet.one(_SITE, self.recovery.public_key().public_bytes_raw())))
        self.first, self.second = self._agent("first"), self._agent("second")

    def _agent(self, name: str) -> Agent:
        key = X25519PrivateKey.generate()
        made = uuid.UUID(str(self.fleet.one(_AGENT, self.site_id, name, key.public_key().public_bytes_raw())))
        self.fleet.connection.execute(_CERTIFICATE, (name, made))
        return Agent(made, key, name, medium=self._medium)

    async def machine(self, node: uuid.UUID | None = None) -> Machine:
        """A machine whose password is sealed to both agents, and for recovery; of a new node without `node`."""
        if node is None:
            self.fleet.connection.execute(ADD_NODES, (1, "baremetal"))
        node_id = node or uuid.UUID(str(self.fleet.one("select id from nodes order by unit_base desc limit 1")))
        self.fleet.connection.execute(_BMC, (node_id, self.site_id))
        keys = {one.id: one.key.public_key().public_bytes_raw() for one in (self.first, self.second)}
        keys[self.site_id] = self.recovery.public_key().public_bytes_raw()
        for recipient, text in seal_to_all(FIRST_PASSWORD, Purpose(self.site_id, node_id, 1), keys).items():
            self.fleet.connection.execute(
                "insert into bmc_credentials values (%s, 1, %s, %s)", (node_id, recipient, text)
            )
        return Machine(self, node_id, StubService(StubMachine(VirtualClock())))

    def expire(self) -> None:
        """The holder of the lease has been silent for as long as the lease was."""
        self.fleet.connection.execute(_ENDED)

    async def take(self, agent: Agent, machine: Machine) -> Order:
        """The agent takes the lease, whose former holder is silent, and the task of the machine."""
        self.expire()
        wanted = LeaseRequest(
            run_id=agent.run_id, agent_version="1", sealing_key=agent.key.public_key().public_bytes_raw().hex()
        )
        held = await take_site_lease(self.context, agent.id, wanted, 20.0, "r")
        assert held.held
        agent.lease.grant(held.fence, 20.0, agent.seconds)
        await advance_bmc_task(self.worker, machine.task_id)
        leased = await lease_bmc_tasks(self.context, agent.id, agent.serial, agent.run_id, held.fence, [], 9)
        assert leased is not None
        (envelope,) = (one.envelope for one in leased if one.task_id == machine.task_id)
        assert self.context.signer is not None
        trusted = {self.context.signer.key_id: self.signing_key.public_key()}
        body: TaskBody = open_envelope(Envelope.model_validate(envelope), trusted)
        return Order(body, BmcTaskParameters.model_validate(body.parameters), held.fence)

    async def perform(self, agent: Agent, machine: Machine, order: Order, step: Step) -> BmcTaskAnswer:
        """Carry the task out and report its end, as the agent's process does. Raises `LeaseEnded`, and what `step` raises."""

        async def store(task_id: uuid.UUID, body: StorePassword) -> StoredPassword:
            await step()
            try:
                return await store_password(self.context, agent.id, task_id, body, "r")
            except Invalid as refused:
                raise StoreRefused(str(refused)) from refused

        def connect(access: BmcAccess, guard: Guard, quiet: bool) -> Bmc:
            transport = Stepping(GuardedTransport(StubTransport(machine.service), guard), step)
            return RedfishBmc(access, PATIENT, quiet=quiet, clock=machine.service.machine.clock, transport=transport)

        clock = ServerClock()
        clock.observe(datetime.now(UTC))
        ports = SitePorts(self.switches, PlacingTimes(self.settle_seconds, 0.05))

        async def keep(task_id: uuid.UUID, body: StoreProgress) -> StoredProgress:
            await step()
            return await keep_progress(self.context, agent.id, task_id, body)

        images = SiteImages(agent.media, Path(tempfile.gettempdir()))
        effects = BmcEffects(agent.id, agent.key, connect, agent.lease, clock, store, agent.media, keep, images, ports)
        report: BmcTaskReport = await effects.carry_out(order)
        await step()
        answer = await accept_bmc_report(self.context, agent.id, machine.task_id, report, "r")
        await step()
        return answer


@dataclass
class Machine:
    """A node with a stub BMC, and its open task."""

    rotations: Rotations
    node_id: uuid.UUID
    service: StubService
    task_id: uuid.UUID = field(default_factory=uuid.uuid4)

    async def request(self, kind: BmcTaskKind) -> None:
        """An operator's request."""
        made = await transact(
            self.rotations.context,
            lambda tx: bmc_tasks.request_task(tx, self.node_id, self.rotations.site_id, kind, "test", 600.0),
        )
        self.task_id = made.id

    @property
    def password(self) -> str:
        """What the BMC accepts."""
        return self.service.machine.passwords[USER]

    def pending(self) -> object:
        """The generation that the BMC may have received; None: none."""
        return self.rotations.fleet.one("select pending_generation from node_bmcs where node_id = %s", self.node_id)

    def known(self, recipient: uuid.UUID, key: X25519PrivateKey) -> set[str]:
        """The passwords that this recipient opens, of the generations that every task names."""
        rows = self.rotations.fleet.connection.execute(
            "select c.generation, c.sealed from bmc_credentials c join node_bmcs b using (node_id) where c.node_id = %s"
            " and c.recipient = %s and c.generation in (b.generation, b.pending_generation)",
            (self.node_id, recipient),
        ).fetchall()
        site = self.rotations.site_id
        return {unseal(text, Purpose(site, self.node_id, number), recipient, key) for number, text in rows}

    def require_known(self) -> None:
        """The BMC's password is one that the recovery key and each agent open."""
        stage = self.rotations
        for recipient, key in (
            (stage.site_id, stage.recovery),
            *((one.id, one.key) for one in (stage.first, stage.second)),
        ):
            assert self.password in self.known(recipient, key)

    def state(self) -> tuple[object, ...]:
        """Generation, pending generation, and the outcome of the newest task."""
        row = self.rotations.fleet.connection.execute(
            "select b.generation, b.pending_generation, t.outcome from node_bmcs b join bmc_tasks t using (node_id)"
            " where b.node_id = %s order by t.requested_at desc limit 1",
            (self.node_id,),
        ).fetchone()
        assert row is not None
        return tuple(row)


@dataclass(frozen=True)
class Connected:
    """A database as a test, and as the roles of the worker and the public API."""

    fleet: Fleet
    context: Context
    worker: Context
    api: Context


@asynccontextmanager
async def connected(url: str, key: Ed25519PrivateKey, *, seeded: bool = False) -> AsyncIterator[Connected]:
    """Connections that end with the block; tasks are signed with this key."""
    urls = (url, as_role(url, Role.WORKER), as_role(url, Role.PUBLIC_API))
    databases = [
        connect_database(
            one, pool_size=2, reserve_size=1, lock_timeout_seconds=5, transaction_timeout_seconds=30,
            application="tests",
        ) for one in urls
    ]  # fmt: skip
    fleet = Fleet(url, seeded=seeded)
    try:
        owner, worker, api = databases
        signer = TaskSigner(key)
        yield Connected(
            fleet, Context(owner, Limits(), signer), Context(worker, Limits(), signer),
            Context(api, Limits(), None).for_platform(),
        )  # fmt: skip
    finally:
        for database in databases:
            await database.close()
        fleet.connection.close()


@asynccontextmanager
async def rotations(url: str, medium: Path | None = None) -> AsyncIterator[Rotations]:
    """A site on this database, whose agents serve this medium.

    One context has the part of the API, of the node listener and of the worker.
    """
    key = Ed25519PrivateKey.generate()
    async with connected(url, key) as found:
        made = Rotations(found.fleet, found.context, key, medium)
        made.worker, made.api = found.worker, found.api
        yield made


@asynccontextmanager
async def reopened(stage: Rotations, url: str) -> AsyncIterator[Rotations]:
    """The site of before on this database, which has it: with the same agents, machines and keys."""
    async with connected(url, stage.signing_key, seeded=True) as found:
        stage.fleet, stage.context, stage.worker, stage.api = found.fleet, found.context, found.worker, found.api
        yield stage
