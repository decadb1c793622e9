"""What an agent of a site takes from the node listener, and what it sends to a BMC at the end of its lease."""

from __future__ import annotations

import asyncio
import base64
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.admission import Refused, Untrusted
from node_agent.clock import ServerClock
from node_agent.journal_records import Accepted
from node_agent.journal_state import JournalState
from node_agent.key_set import TaskKey, key_id
from node_agent.protocol import Envelope, HandedOutTask, TaskBody, TaskType, sign_task
from node_agent.redfish.clock import SystemClock
from node_agent.redfish.contract import BmcAccess
from node_agent.site.admission import AdmittedBmcTask, SiteTrust, admit
from node_agent.site.bmcs import connect_redfish
from node_agent.site.lease import LeaseEnded
from tests.support.bmc.machine import StubMachine
from tests.support.bmc.server import certificate, server_context, serving
from tests.support.bmc.service import StubService

SITE, NODE = uuid.uuid4(), uuid.uuid4()
PARAMETERS: dict[str, Any] = {
    "site_id": str(SITE), "url": "https://192.0.2.7", "certificate_sha256": "0" * 64, "username": "u",
    "passwords": [{"generation": 1, "sealed": {str(SITE): "x"}}],
}  # fmt: skip
WALL_CLOCK = ("datetime.now(", "utcnow(", "time.time(", "date.today(")


@dataclass
class Server:
    """What an agent knows of its control plane, whose clock is `hours` ahead of this machine's."""

    hours: float = 0.0
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    journal: JournalState = field(default_factory=JournalState)

    def __post_init__(self) -> None:
        self.now = datetime.now(UTC) + timedelta(hours=self.hours)
        self.clock = ServerClock()
        self.clock.observe(self.now)

    def body(self, **changed: Any) -> TaskBody:
        named: dict[str, Any] = {
            "task_id": uuid.uuid4(), "type": TaskType.METAL_LOOK, "node_id": NODE, "node_epoch": 1, "allocation_id": None,
            "fence": 7, "parameters": PARAMETERS, "not_before": self.now - timedelta(seconds=5),
            "expires_at": self.now + timedelta(minutes=15), "key_id": key_id(self.key.public_key()), **changed,
        }  # fmt: skip
        return TaskBody(**named)

    def sign(self, body: TaskBody, task_id: uuid.UUID | None = None) -> HandedOutTask:
        return HandedOutTask(task_id=task_id or body.task_id, envelope=sign_task(body, self.key))

    def admit(self, handed: HandedOutTask, **limits: Any) -> AdmittedBmcTask | Refused | Untrusted:
        public = self.key.public_key()
        name = key_id(public)
        text = base64.b64encode(public.public_bytes_raw()).decode()
        trust = SiteTrust(SITE, {name: public}, {name: TaskKey(key_id=name, public_key=text, **limits)})
        return admit(handed, trust, self.journal, self.clock)


def untrusted(reason: str, server: Server) -> AdmittedBmcTask | Refused | Untrusted:
    match reason:
        case "unknown_key":
            other = Server()
            return server.admit(other.sign(other.body()))
        case "bad_signature":
            signed = server.sign(server.body())
            forged = server.sign(server.body(fence=9)).envelope
            mixed = Envelope(
                payloadType=forged.payloadType, payload=forged.payload, signatures=signed.envelope.signatures
            )
            return server.admit(HandedOutTask(task_id=signed.task_id, envelope=mixed))
        case "wrong_task_id":
            return server.admit(server.sign(server.body(), uuid.uuid4()))
        case "wrong_type":
            return server.admit(server.sign(server.body(type=TaskType.BURN_IN)))
        case "wrong_site":
            return server.admit(server.sign(server.body(parameters={**PARAMETERS, "site_id": str(uuid.uuid4())})))
        case _:
            return server.admit(server.sign(server.body()), not_after=server.now - timedelta(seconds=1))


@pytest.mark.parametrize(
    "reason", ["unknown_key", "bad_signature", "wrong_task_id", "wrong_type", "wrong_site", "key_not_valid_now"]
)
def test_what_is_not_proven_to_be_of_this_site_is_never_answered(reason: str) -> None:
    assert untrusted(reason, Server()) == Untrusted(reason)


@pytest.mark.parametrize("hours", [0.0, 1.0, -1.0])
def test_the_servers_clock_decides_when_a_task_is_in_time(hours: float) -> None:
    server = Server(hours)
    assert isinstance(server.admit(server.sign(server.body())), AdmittedBmcTask)
    late = server.admit(server.sign(server.body(expires_at=server.now)))
    early = server.admit(server.sign(server.body(not_before=server.now + timedelta(minutes=1))))
    assert [isinstance(one, Refused) for one in (late, early)] == [True, True]
    server.clock, handed = ServerClock(), server.sign(server.body())
    with pytest.raises(LookupError):
        server.admit(handed)


def test_no_module_of_the_agent_reads_this_machines_wall_clock() -> None:
    package = Path(__file__).parents[2] / "node_agent" / "site"
    found = [path.name for path in package.glob("*.py") if any(name in path.read_text() for name in WALL_CLOCK)]
    assert found == []


def test_an_older_fence_and_unknown_parameters_are_refused_and_a_task_may_be_repeated() -> None:
    server = Server()
    first = server.body()
    server.journal.apply(Accepted(envelope=server.sign(first).envelope))
    assert isinstance(server.admit(server.sign(first)), AdmittedBmcTask), "the next lease performs it again"
    assert isinstance(server.admit(server.sign(server.body(fence=6))), Refused)
    assert isinstance(server.admit(server.sign(server.body(fence=8))), AdmittedBmcTask)
    unknown = server.admit(server.sign(server.body(fence=9, parameters={**PARAMETERS, "passwords": []})))
    assert isinstance(unknown, Refused)
    assert "passwords" in unknown.detail


def test_nothing_is_sent_when_the_lease_ends_while_the_connection_is_made() -> None:
    async def scene() -> tuple[int, list[str]]:
        service, evaluated = StubService(StubMachine(SystemClock())), 0

        def guard() -> None:
            nonlocal evaluated
            evaluated += 1
            if evaluated > 1:
                raise LeaseEnded("test")

        async with serving(service, server_context(1), 0) as port:
            access = BmcAccess(f"https://127.0.0.1:{port}", "u", "a-password", certificate(1)[2], None)
            bmc = connect_redfish(access, guard)
            with pytest.raises(LeaseEnded):
                await bmc.describe()
            await bmc.close()
        return evaluated, service.requests

    assert asyncio.run(scene()) == (2, [])
