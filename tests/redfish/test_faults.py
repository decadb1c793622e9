"""A BMC that fails or lies: each fault ends in a named error, and what is unknown is not called failed."""

from __future__ import annotations

import pytest

from node_agent.redfish.contract import BootTarget, PowerAction, PowerState, Working
from node_agent.redfish.problems import (
    AnswerUnreadable,
    BmcProblem,
    Busy,
    CertificateChanged,
    Conflict,
    CredentialsRefused,
    NotSettled,
    OutcomeUnknown,
    TaskFailed,
    Unreachable,
    WithoutEffect,
)
from tests.redfish.running import commands, run
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options
from tests.support.bmc.server import served

RESET = "POST .*ComputerSystem.Reset"
SYSTEM = "GET .*/Systems/1$"
INSERT = "POST .*InsertMedia"
BOOT = "PATCH .*/Systems/1$"
PASSWORD = "PATCH .*/Accounts/1$"
IMAGE = "https://deploy/medium.iso"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Fault.BUSY, Busy),
        (Fault.ERROR, Unreachable),
        (Fault.NO_ANSWER, Unreachable),
        (Fault.BROKEN_BEFORE, Unreachable),
        (Fault.ENDLESS, AnswerUnreadable),
        (Fault.SLOW, Unreachable),
        (Fault.UNAUTHORISED, CredentialsRefused),
    ],
)
def test_a_read_that_fails_again_and_again_ends_in_a_named_error(fault: Fault, problem: type[BmcProblem]) -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.power_state()
            stub.service.script.add(SYSTEM, fault, times=100)
            with pytest.raises(problem):
                await bmc.power_state()
            assert len(stub.service.requests) < 20

    run(scene())


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.NO_ANSWER, Fault.BROKEN_BEFORE, Fault.UNAUTHORISED])
def test_a_read_is_repeated(fault: Fault) -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.power_state()
            stub.service.script.add(SYSTEM, fault)
            assert (await bmc.power_state()).state is PowerState.OFF

    run(scene())


def test_success_without_effect_is_not_believed() -> None:
    async def scene() -> None:
        async with served() as stub:
            script, bmc = stub.service.script, stub.client()
            script.add(RESET, Fault.LIE)
            with pytest.raises(NotSettled):
                await bmc.set_power(PowerAction.ON)
            script.add(INSERT, Fault.LIE)
            with pytest.raises(WithoutEffect):
                await bmc.insert_medium(IMAGE)
            script.add(BOOT, Fault.LIE)
            with pytest.raises(WithoutEffect):
                await bmc.boot_once(BootTarget.CD)
            script.add(PASSWORD, Fault.LIE)
            assert await bmc.rotate("second-secret") is Working.OLD
            script.add("POST .*Manager.Reset", Fault.LIE)
            with pytest.raises(WithoutEffect):
                await bmc.reset_bmc()
            assert stub.machine.effects == []

    run(scene())


def test_a_bmc_that_ignores_once_is_reported_and_the_disk_is_set() -> None:
    async def scene() -> None:
        async with served(Options(keeps_override=True)) as stub:
            bmc = stub.client()
            override = await bmc.boot_once(BootTarget.CD)
            assert (override.target, override.once, override.enabled) == ("Cd", False, "Continuous")
            assert (await bmc.set_boot_disk()).target == "Hdd"

    run(scene())


def test_a_lost_boot_override_is_read_back() -> None:
    async def scene() -> None:
        async with served(Options(loses_override=True)) as stub:
            with pytest.raises(WithoutEffect, match="None, Disabled"):
                await stub.client().boot_once(BootTarget.CD)

    run(scene())


def test_a_boot_override_with_another_target_is_not_believed() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.set_boot_disk()
            stub.service.script.add(BOOT, Fault.LIE)
            with pytest.raises(WithoutEffect, match="Hdd, Continuous"):
                await bmc.boot_once(BootTarget.CD)

    run(scene())


def test_a_medium_that_was_ejected_by_another_client_reads_as_ejected() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.insert_medium(IMAGE)
            stub.machine.set_image(None)
            assert not (await bmc.read_medium()).inserted

    run(scene())


@pytest.mark.parametrize(
    "fault", [Fault.BROKEN_AFTER, Fault.NO_ANSWER_WITH_EFFECT, Fault.QUEUED, Fault.ERROR_WITH_EFFECT]
)
def test_media_and_boot_without_an_answer_are_read_back(fault: Fault) -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(f"{INSERT}|{BOOT}", fault, times=2, seconds=20)
            bmc = stub.client()
            assert (await bmc.insert_medium(IMAGE)).inserted
            assert (await bmc.boot_once(BootTarget.CD)).once
            assert commands(stub) == ["InsertMedia", "1"]

    run(scene())


def test_an_insert_without_an_answer_and_an_effect_is_unknown() -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(INSERT, Fault.ERROR)
            with pytest.raises(OutcomeUnknown):
                await stub.client().insert_medium(IMAGE)
            assert commands(stub) == ["InsertMedia"]

    run(scene())


@pytest.mark.parametrize(
    ("fault", "working"),
    [
        (Fault.BROKEN_AFTER, Working.NEW),
        (Fault.BROKEN_BEFORE, Working.OLD),
        (Fault.NO_ANSWER_WITH_EFFECT, Working.NEW),
        (Fault.ERROR, Working.OLD),
    ],
)
def test_a_password_change_without_an_answer_is_decided_by_trying(fault: Fault, working: Working) -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            stub.service.script.add(PASSWORD, fault)
            assert await bmc.rotate("second-secret") is working
            assert (await bmc.power_state()).state is PowerState.OFF
            assert commands(stub) == ["1"]
            assert stub.machine.refused_logins == 1

    run(scene())


def test_a_password_change_whose_trials_have_no_answer_is_unknown() -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(PASSWORD, Fault.BROKEN_AFTER)
            bmc = stub.client()
            await bmc.power_state()
            original = stub.machine.set_password

            def change(name: str, password: str) -> None:
                original(name, password)
                stub.service.script.add("POST .*/Sessions$", Fault.NO_ANSWER, times=100)

            stub.machine.set_password = change  # type: ignore[method-assign]
            with pytest.raises(OutcomeUnknown):
                await bmc.rotate("second-secret")

    run(scene())


def test_a_password_that_was_changed_elsewhere_is_refused() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.power_state()
            stub.machine.set_password("berth", "changed-by-hand")
            with pytest.raises(CredentialsRefused):
                await bmc.set_power(PowerAction.ON)
            assert stub.machine.refused_logins == 1

    run(scene())


def test_a_session_that_ended_is_renewed_once() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.power_state()
            stub.machine.sessions.clear()
            assert (await bmc.power_state()).state is PowerState.OFF
            assert len(stub.machine.sessions) == 1

    run(scene())


def test_a_resource_that_changes_between_read_and_write_is_read_again_once() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc, script = stub.client(), stub.service.script
            script.add(BOOT, Fault.CHANGED)
            assert (await bmc.boot_once(BootTarget.CD)).once
            assert commands(stub) == ["1", "1"]
            script.add(BOOT, Fault.CHANGED, times=2)
            with pytest.raises(Conflict):
                await bmc.boot_once(BootTarget.CD)
            assert commands(stub) == ["1"] * 4

    run(scene())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options(tasks=True, task_state="Exception"), TaskFailed),
        (Options(tasks=True, task_state="Killed"), TaskFailed),
        (Options(tasks=True, task_seconds=1e9), OutcomeUnknown),
    ],
)
def test_a_task_that_fails_or_never_ends(options: Options, problem: type[BmcProblem]) -> None:
    async def scene() -> None:
        async with served(options) as stub:
            with pytest.raises(problem):
                await stub.client().update_firmware("https://deploy/bmc.bin")
            assert commands(stub) == ["SimpleUpdate"]

    run(scene())


def test_another_certificate_ends_before_the_password_is_sent() -> None:
    async def scene() -> None:
        async with served() as stub:
            port = int(stub.access.url.rpartition(":")[2])
            bmc = stub.client()
            await bmc.power_state()
        async with served(certificate_number=2, port=port) as other:
            with pytest.raises(CertificateChanged) as caught:
                await bmc.set_power(PowerAction.ON)
            assert caught.value.seen_sha256 == other.access.certificate_sha256
            assert other.service.requests == []

    run(scene())
