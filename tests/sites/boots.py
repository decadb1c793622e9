"""Agents of a site that start and end the deploy system of one machine, without a control plane: any of them dies at any step."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from prometheus_client import CollectorRegistry

from berth.process.sealed_passwords import DEPLOY_TOKEN_FORMAT, Purpose, seal_to_all
from node_agent.clock import ServerClock
from node_agent.media.publications import OwnMedium
from node_agent.protocol import TaskBody, TaskType
from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import Bmc, BmcAccess
from node_agent.site.bmcs import Guard, GuardedTransport
from node_agent.site.effects import BmcEffects, Order
from node_agent.site.images import SiteImages
from node_agent.site.lease import Lease
from node_agent.site.media import MediaPlace, SiteMedia
from node_agent.wire.firmware import StoredProgress, StoreProgress
from node_agent.wire.sites import BmcTaskParameters, BmcTaskReport, StoredPassword, StorePassword
from tests.media.media_files import common_medium
from tests.sites.rotations import FIRST_PASSWORD, PATIENT, USER, Step, Stepping
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.service import StubService
from tests.support.bmc.transport import StubTransport

SITE, NODE = uuid.UUID(int=1), uuid.UUID(int=2)
TOKEN = "deploy1." + "t" * 43
START, END = TaskType.METAL_START_DEPLOY_SYSTEM, TaskType.METAL_END_DEPLOY_SYSTEM
EJECT = TaskType.METAL_EJECT_MEDIUM


async def nothing() -> None:
    """A step of an agent that goes on."""


@dataclass
class Agent:
    """One process of an agent: its key, its lease by a clock that the test moves, its media."""

    host: str
    medium: Path | None
    key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.lease = Lease(lambda: self.seconds)
        place = None if self.medium is None else MediaPlace(f"http://{self.host}", "127.0.0.1", 0, self.medium)
        self.media = SiteMedia(place, self.lease, CollectorRegistry())
        self.effects: dict[int, BmcEffects] = {}

    def served(self, image: str | None) -> OwnMedium | None:
        """What this agent serves under the URL that a BMC names."""
        path = "" if image is None else "/" + image.split("/", 3)[3]
        return self.media._publications.find(path)


class Rack:
    """One machine behind a stub BMC, and two agents, each with the lease in turn."""

    def __init__(self, directory: Path, options: Options | None = None) -> None:
        file = directory / "deploy.iso"
        if not file.exists():
            common_medium(file)
        self.service = StubService(StubMachine(VirtualClock(), options or Options()))
        self.first, self.second = Agent("first", file), Agent("second", file)
        self.fence = 0

    @property
    def machine(self) -> StubMachine:
        return self.service.machine

    def order(self, agent: Agent, kind: TaskType, **boot: Any) -> Order:
        """The task, under a lease that the agent has taken just now."""
        self.fence += 1
        agent.lease.grant(self.fence, 20.0, agent.seconds)
        return Order(self._body(kind), self.parameters(kind, **boot), self.fence)

    def _body(self, kind: TaskType) -> TaskBody:
        now = datetime.now(UTC)
        return TaskBody(
            task_id=uuid.uuid4(), type=kind, node_id=NODE, node_epoch=1, allocation_id=None, fence=7, parameters={},
            not_before=now, expires_at=now + timedelta(minutes=15), key_id="k",
        )  # fmt: skip

    def sealed(self, text: str, purpose: Purpose) -> Mapping[uuid.UUID, str]:
        keys = {one.id: one.key.public_key().public_bytes_raw() for one in (self.first, self.second)}
        return seal_to_all(text, purpose, keys)

    def parameters(self, kind: TaskType, **boot: Any) -> BmcTaskParameters:
        found: dict[str, Any] = {
            "site_id": SITE, "url": "https://192.0.2.7", "certificate_sha256": "0" * 64, "username": USER,
            "passwords": [{"generation": 1, "sealed": self.sealed(FIRST_PASSWORD, Purpose(SITE, NODE, 1))}],
        }  # fmt: skip
        if kind is START:
            found["boot"] = {
                "deploy_epoch": 3, "api_url": "https://api.example", "node_api_url": "https://nodes.example", "ca_pem": "CA",
                "expires_at": datetime.now(UTC), "network": {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24"},
                "token": self.sealed(TOKEN, Purpose(SITE, NODE, 3, DEPLOY_TOKEN_FORMAT)), **boot,
            }  # fmt: skip
        return BmcTaskParameters.model_validate(found)

    async def perform(self, agent: Agent, order: Order, step: Step = nothing) -> BmcTaskReport:
        """Carry the task out as the agent's process does. Raises `LeaseEnded`, and what `step` raises."""

        async def store(task_id: uuid.UUID, body: StorePassword) -> StoredPassword:
            raise AssertionError("no password is stored")

        async def keep(task_id: uuid.UUID, body: StoreProgress) -> StoredProgress:
            raise AssertionError("no firmware is updated")

        def connect(access: BmcAccess, guard: Guard, quiet: bool) -> Bmc:
            transport = Stepping(GuardedTransport(StubTransport(self.service), guard), step)
            return RedfishBmc(access, PATIENT, quiet=quiet, clock=self.machine.clock, transport=transport)

        clock = ServerClock()
        clock.observe(datetime.now(UTC))
        if order.lease_fence not in agent.effects:
            agent.effects[order.lease_fence] = BmcEffects(
                agent.id, agent.key, connect, agent.lease, clock, store, agent.media, keep,
                SiteImages(agent.media, Path(tempfile.gettempdir())),
            )  # fmt: skip
        return await agent.effects[order.lease_fence].carry_out(order)

    def is_repeated(self) -> bool:
        """Whether the next request is the same state as the last one: a wait reads the same again and again."""
        *_, before, last = ["", "", *self.service.requests]
        return before == last and last.startswith("GET")
