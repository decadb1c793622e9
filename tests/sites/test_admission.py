"""What an agent of a site takes from the node listener, and what it sends to a BMC at the end of its lease."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from node_agent.admission import Refused, Untrusted
from node_agent.clock import ServerClock
from node_agent.journal_records import Accepted
from node_agent.protocol import Envelope, HandedOutTask, TaskType
from node_agent.redfish.clock import SystemClock
from node_agent.redfish.contract import BmcAccess
from node_agent.site.admission import AdmittedBmcTask
from node_agent.site.bmcs import connect_redfish
from node_agent.site.lease import LeaseEnded
from tests.sites.renting.signing import PARAMETERS, Server
from tests.support.bmc.machine import StubMachine
from tests.support.bmc.server import certificate, server_context, serving
from tests.support.bmc.service import StubService

WALL_CLOCK = ("datetime.now(", "utcnow(", "time.time(", "date.today(")


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
