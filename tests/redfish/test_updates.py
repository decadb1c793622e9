"""An update of firmware in steps: sent once, its task followed through restarts of the BMC, the versions read back."""

from __future__ import annotations

import json
import math

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, ResetNeed
from node_agent.redfish.problems import CertificateChanged, NotBack, OutcomeUnknown, TaskFailed
from tests.redfish.running import commands, run
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.server import DEADLINES, Stub, certificate, served, server_context, serving
from tests.support.bmc.service import StubService

IMAGE = "http://198.51.100.7/firmware/x/bmc.bin"


async def begun(stub: Stub) -> tuple[RedfishBmc, str]:
    """A client, and the task of the update that it has begun."""
    bmc = stub.client()
    taken = await bmc.begin_update(IMAGE, await bmc.firmware())
    assert taken.task is not None
    return bmc, taken.task


@pytest.mark.parametrize(
    ("applies", "needs"),
    [("", set()), ("host", {ResetNeed.HOST}), ("bmc", {ResetNeed.BMC})],
    ids=["none", "host", "bmc"],
)
def test_the_task_says_what_must_be_reset(applies: str, needs: set[ResetNeed]) -> None:
    async def scene() -> None:
        async with served(Options(tasks=True, update_applies=applies)) as stub:
            before = await stub.client().update_tasks()
            bmc, task = await begun(stub)
            assert await bmc.await_update(task, 60) == needs
            sent = json.loads(stub.service.accepted[-1][1])
            assert sent["Targets"] == ["/redfish/v1/UpdateService/FirmwareInventory/BMC"]
            assert (sent["ImageURI"], sent["TransferProtocol"]) == (IMAGE, "HTTP")
            assert (before, await bmc.update_tasks()) == ((), ("/redfish/v1/TaskService/Tasks/1",))
            (entry,) = await bmc.read_versions(("BMC",), "2.00", 60 if not applies else 0)
            assert entry.version == ("1.00" if applies else "2.00")

    run(scene())


def test_a_task_is_followed_through_a_restart_and_is_unknown_once_the_bmc_forgets_it() -> None:
    async def scene() -> None:
        async with served(Options(tasks=True)) as stub:
            bmc, task = await begun(stub)
            stub.service.script.add("GET /taskmon", Fault.BUSY, times=2)
            stub.service.script.add("GET /taskmon", Fault.BROKEN_BEFORE, times=2)
            assert await bmc.await_update(task, 60) == set()
        async with served(Options(tasks=True, update_restarts=True)) as stub:
            bmc, task = await begun(stub)
            with pytest.raises(OutcomeUnknown):
                await bmc.await_update(task, 60)
            assert (await bmc.read_versions(("BMC",), "2.00", 60))[0].version == "2.00"
            assert commands(stub).count("SimpleUpdate") == 1

    run(scene())


def test_a_task_that_fails_or_does_not_end_is_not_an_end() -> None:
    async def scene() -> None:
        async with served(Options(tasks=True, task_state="Exception")) as stub:
            bmc, task = await begun(stub)
            with pytest.raises(TaskFailed):
                await bmc.await_update(task, 60)
        async with served(Options(tasks=True, task_seconds=math.inf)) as stub:
            bmc, task = await begun(stub)
            began = stub.clock.now()
            with pytest.raises(OutcomeUnknown):
                await bmc.await_update(task, 60)
            assert 60 <= stub.clock.now() - began < 90

    run(scene())


def test_versions_of_a_bmc_that_does_not_answer_at_the_last_are_not_read() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            assert (await bmc.read_versions(("BMC",), "2.00", 30))[0].version == "1.00"
            stub.machine.silent_until = math.inf
            with pytest.raises(NotBack):
                await bmc.read_versions(("BMC",), "2.00", 30)

    run(scene())


def test_refused_logins_are_bounded() -> None:
    async def scene() -> None:
        async with served(Options(tasks=True)) as stub:
            bmc, task = await begun(stub)
            stub.machine.sessions.clear()
            stub.machine.passwords["berth"] = "default"
            with pytest.raises(NotBack):
                await bmc.await_update(task, 600)
            assert stub.machine.refused_logins == 2, "five lock the account"

    run(scene())


def test_another_certificate_during_the_update_gets_no_credentials() -> None:
    async def scene() -> None:
        clock, context = VirtualClock(), server_context(1)
        service = StubService(StubMachine(clock, Options(tasks=True, update_restarts=True)))

        def replaced() -> None:
            other = server_context(2)
            context.sni_callback = lambda connection, name, used: setattr(connection, "context", other)

        service.machine.options.restart_effect = replaced
        async with serving(service, context, 0) as port:
            access = BmcAccess(f"https://127.0.0.1:{port}", "berth", "first-secret", certificate(1)[2])
            bmc = RedfishBmc(access, DEADLINES, quiet=True, clock=clock)
            taken = await bmc.begin_update(IMAGE, await bmc.firmware())
            assert taken.task is not None
            with pytest.raises(CertificateChanged):
                await bmc.await_update(taken.task, 600)
            with pytest.raises(CertificateChanged):
                await bmc.read_versions(("BMC",), "2.00", 600)
            sent = next(n for n, line in enumerate(service.requests) if line.endswith("SimpleUpdate"))
            assert not [line for line in service.requests[sent + 1 :] if line.startswith("POST")], "no login"

    run(scene())
