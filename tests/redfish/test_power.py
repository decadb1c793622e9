"""Power under faults: what may be queued, what is believed, and that no command is sent twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from node_agent.redfish.contract import PowerAction, PowerReading, PowerState
from node_agent.redfish.problems import (
    Busy,
    Conflict,
    NotSettled,
    OutcomeUnknown,
)
from tests.redfish.running import commands, run
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options
from tests.support.bmc.server import DEADLINES, served
from tests.support.waiting import async_wait_for

RESET = "POST .*ComputerSystem.Reset"
SYSTEM = "GET .*/Systems/1$"
INSERT = "POST .*InsertMedia"
BOOT = "PATCH .*/Systems/1$"
PASSWORD = "PATCH .*/Accounts/1$"
IMAGE = "https://deploy/medium.iso"


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        (Fault.NO_ANSWER_WITH_EFFECT, 1),
        (Fault.BROKEN_AFTER, 1),
        (Fault.ERROR_WITH_EFFECT, 1),
        (Fault.QUEUED, 1),
        (Fault.DELAYED, 1),
        (Fault.UNAUTHORISED, 2),
    ],
)
def test_a_command_that_took_effect_is_found_out_by_reading_and_not_sent_again(fault: Fault, sent: int) -> None:
    """401 refuses the command, so it is sent again with a new session: one effect all the same."""

    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(RESET, fault, seconds=12)
            outcome = await stub.client().set_power(PowerAction.ON)
            assert (outcome.state, outcome.sent) == (PowerState.ON, ("On",))
            assert outcome.answered is (fault in (Fault.DELAYED, Fault.UNAUTHORISED))
            assert commands(stub) == ["Reset"] * sent
            assert stub.machine.effects == ["On"]

    run(scene())


@pytest.mark.parametrize("fault", [Fault.NO_ANSWER, Fault.BROKEN_BEFORE, Fault.ERROR])
def test_a_command_without_an_answer_and_an_effect_is_unknown_and_not_failed(fault: Fault) -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(RESET, fault)
            with pytest.raises(OutcomeUnknown):
                await stub.client().set_power(PowerAction.ON)
            assert commands(stub) == ["Reset"]

    run(scene())


def test_a_busy_bmc_says_when_to_try_again_and_nothing_was_done() -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(RESET, Fault.BUSY)
            bmc = stub.client()
            with pytest.raises(Busy) as caught:
                await bmc.set_power(PowerAction.ON)
            assert caught.value.retry_after_seconds == 1
            assert (await bmc.power_state()).certain
            assert commands(stub) == ["Reset"]

    run(scene())


def test_a_graceful_off_that_the_machine_ignores_ends_at_its_deadline() -> None:
    async def scene() -> None:
        async with served(Options(graceful_ignored=True)) as stub:
            bmc = stub.client()
            await bmc.set_power(PowerAction.ON)
            with pytest.raises(NotSettled) as caught:
                await bmc.set_power(PowerAction.GRACEFUL_OFF)
            assert caught.value.last_seen == "On"
            assert (await bmc.set_power(PowerAction.FORCE_OFF)).sent == ("ForceOff",)

    run(scene())


def test_a_queued_on_that_arrives_after_off_was_seen_is_not_missed() -> None:
    """The emulator's trace: On had no answer, the machine was off, and 10 s later it was on."""

    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client(deadlines=replace(DEADLINES, settle_seconds=5))
            stub.service.script.add(RESET, Fault.QUEUED, seconds=25)
            with pytest.raises(OutcomeUnknown):
                await bmc.set_power(PowerAction.ON)
            assert await bmc.power_state() == PowerReading(PowerState.OFF, certain=False)
            with pytest.raises(Conflict):
                await bmc.insert_medium(IMAGE)
            with pytest.raises(NotSettled):
                await bmc.set_power(PowerAction.FORCE_OFF)  # off, but not for certain within 5 s
            stub.clock.advance(30)
            assert (await bmc.set_power(PowerAction.FORCE_OFF)).sent == ("ForceOff",)
            assert stub.machine.effects == ["On", "ForceOff"]
            await bmc.settle(PowerState.OFF, 0)

    run(scene())


def test_an_answered_command_without_its_effect_keeps_the_state_uncertain() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client(deadlines=replace(DEADLINES, settle_seconds=5))
            stub.service.script.add(RESET, Fault.DELAYED, seconds=20)
            with pytest.raises(NotSettled):
                await bmc.set_power(PowerAction.ON)
            assert not (await bmc.power_state()).certain
            stub.clock.advance(26)
            assert await bmc.power_state() == PowerReading(PowerState.ON, certain=True)

    run(scene())


def test_a_command_whose_caller_was_cancelled_keeps_the_state_uncertain() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client(deadlines=replace(DEADLINES, command_seconds=30))
            stub.service.script.add(RESET, Fault.QUEUED, seconds=20)
            call = asyncio.create_task(bmc.set_power(PowerAction.ON))
            await async_wait_for(lambda: commands(stub), "the command at the BMC")
            call.cancel()
            await asyncio.wait([call])
            assert not (await bmc.power_state()).certain

    run(scene())


def test_a_new_process_does_not_believe_off_at_once() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client(quiet=False)
            stub.machine.later(10, lambda: stub.machine.reset("On"))  # left by the process before
            assert not (await bmc.power_state()).certain
            assert (await bmc.set_power(PowerAction.FORCE_OFF)).sent == ("ForceOff",)
            assert stub.machine.effects == ["On", "ForceOff"]

    run(scene())


def test_a_flapping_power_state_never_settles() -> None:
    async def scene() -> None:
        async with served() as stub:
            machine = stub.machine

            def flap() -> None:
                machine.power = "On" if machine.power == "Off" else "Off"
                machine.later(7, flap)

            flap()
            with pytest.raises(NotSettled):
                await stub.client().settle(PowerState.OFF)

    run(scene())


def test_a_state_that_is_left_without_a_command_is_reported() -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(RESET, Fault.BROKEN_AFTER)
            stub.machine.later(5, lambda: stub.machine.reset("ForceOff"))
            with pytest.raises(NotSettled, match="is Off without a command"):
                await stub.client().set_power(PowerAction.ON)

    run(scene())
