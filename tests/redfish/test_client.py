"""What the client reads and commands on a BMC that behaves."""

from __future__ import annotations

import pytest

from node_agent.redfish.contract import BootTarget, Manager, Nic, PowerAction, PowerState, Working
from node_agent.redfish.problems import Conflict, NotSupported, ValueNotAllowed
from tests.redfish.running import run
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options
from tests.support.bmc.resources import UUID
from tests.support.bmc.server import served


def test_the_description_holds_identity_parts_and_firmware() -> None:
    async def scene() -> None:
        async with served() as stub:
            found = await stub.client().describe()
            assert (found.manufacturer, found.model, found.serial, found.uuid) == (
                "Contoso",
                "3500",
                "437XR1138R2",
                UUID,
            )
            assert (found.processors, found.memory_bytes, found.power_state) == (2, 96 << 30, PowerState.OFF)
            assert found.nics == (Nic("1", "52:54:00:aa:bb:01", True),)
            assert [(disk.serial, disk.bytes) for disk in found.disks] == [("1234570", 899527000000)]
            assert [(item.id, item.version) for item in found.firmware] == [("BMC", "1.00")]
            assert found.manager == Manager("BMC", "Joo Janta 200", "1.00")
            assert found.quirks == ()

    run(scene())


def test_each_power_action_reaches_its_state_and_sends_nothing_if_it_is_there() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            for action, state, sent in (
                (PowerAction.ON, "On", ("On",)),
                (PowerAction.ON, "On", ()),
                (PowerAction.RESTART, "On", ("ForceOff", "On")),
                (PowerAction.GRACEFUL_OFF, "Off", ("GracefulShutdown",)),
                (PowerAction.FORCE_OFF, "Off", ()),
                (PowerAction.RESTART, "On", ("On",)),
                (PowerAction.FORCE_OFF, "Off", ("ForceOff",)),
            ):
                outcome = await bmc.set_power(action)
                assert (outcome.sent, outcome.state, stub.machine.power) == (sent, state, state), action

    run(scene())


@pytest.mark.parametrize(
    "options", [Options(), Options(media_of_system=True), Options(tasks=True), Options(etags=False)]
)
def test_the_machine_boots_once_from_a_medium_and_then_from_its_disk(options: Options) -> None:
    async def scene() -> None:
        async with served(options) as stub:
            bmc = stub.client()
            medium = await bmc.insert_medium("https://deploy/secret-token/medium.iso")
            assert medium.inserted
            assert "secret-token" not in repr(medium)
            override = await bmc.boot_once(BootTarget.CD)
            assert (override.target, override.once) == ("Cd", True)
            await bmc.set_power(PowerAction.ON)
            await bmc.set_power(PowerAction.RESTART)
            assert stub.machine.boots == ["Cd", "None"]
            await bmc.set_power(PowerAction.FORCE_OFF)
            assert not (await bmc.eject_medium()).inserted
            assert not (await bmc.eject_medium()).inserted
            assert stub.machine.effects.count("eject") == 1
            assert (await bmc.set_boot_disk()).target == "Hdd"

    run(scene())


def test_another_medium_is_ejected_before_one_is_inserted() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.insert_medium("http://deploy/first.iso")
            await bmc.insert_medium("http://deploy/second.iso")
            assert stub.machine.effects == ["insert", "eject", "insert"]
            assert stub.machine.image == "http://deploy/second.iso"

    run(scene())


def test_no_medium_is_inserted_while_the_machine_runs_or_may_be_started() -> None:
    async def scene() -> None:
        async with served() as stub:
            with pytest.raises(Conflict, match="a command may be queued"):
                await stub.client(quiet=False).insert_medium("http://deploy/first.iso")
            bmc = stub.client()
            await bmc.set_power(PowerAction.ON)
            with pytest.raises(Conflict, match="it is On"):
                await bmc.insert_medium("http://deploy/first.iso")
            assert "insert" not in stub.machine.effects

    run(scene())


def test_values_that_the_bmc_does_not_list_are_not_sent() -> None:
    async def scene() -> None:
        async with served(Options(reset_types=("On",))) as stub:
            bmc = stub.client()
            await bmc.set_power(PowerAction.ON)
            with pytest.raises(ValueNotAllowed, match="ForceOff"):
                await bmc.set_power(PowerAction.FORCE_OFF)
            with pytest.raises(ValueNotAllowed, match="UsbCd"):
                await bmc.boot_once(BootTarget.USB_CD)
            with pytest.raises(ValueNotAllowed):
                await bmc.insert_medium("file:///etc/passwd")
            assert [line for line, _ in stub.service.accepted] == [
                "POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
            ]

    run(scene())


def test_allowed_values_of_an_action_info_count_too() -> None:
    async def scene() -> None:
        async with served(Options(action_info=True, reset_types=("ForceOn",))) as stub:
            assert (await stub.client().set_power(PowerAction.ON)).sent == ("ForceOn",)

    run(scene())


@pytest.mark.parametrize("sessions", [True, False])
def test_a_password_is_changed_and_the_client_goes_on_with_it(sessions: bool) -> None:
    async def scene() -> None:
        async with served(Options(sessions=sessions)) as stub:
            bmc = stub.client()
            assert await bmc.rotate("second-secret") is Working.NEW
            assert stub.machine.passwords == {"berth": "second-secret"}
            assert (await bmc.power_state()).state is PowerState.OFF
            await bmc.close()
            assert stub.machine.sessions == {}
            # A process that died in between finds the change done, and one that knows neither password changes nothing.
            assert await stub.client(password="first-secret").rotate("second-secret") is Working.NEW
            assert await stub.client(password="lost-secret").rotate("other-secret") is Working.NEITHER
            assert stub.machine.effects == ["password"]

    run(scene())


@pytest.mark.parametrize("password", ["short", "first-secret", "x" * 257, "two\nlines here"])
def test_a_password_out_of_bounds_is_not_sent(password: str) -> None:
    async def scene() -> None:
        async with served() as stub:
            with pytest.raises(ValueNotAllowed):
                await stub.client().rotate(password)
            assert stub.service.requests == []

    run(scene())


def test_the_newest_log_entries_come_first_and_are_bounded() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            log = await bmc.read_log(1)
            assert [(entry.severity, entry.message) for entry in log.entries] == [("Critical", "DIMM 3 failed")]
            assert log.truncated
            assert not (await bmc.read_log(2)).truncated
            with pytest.raises(ValueNotAllowed):
                await bmc.read_log(0)

    run(scene())


@pytest.mark.parametrize("tasks", [True, False])
def test_firmware_is_updated_and_read_again(tasks: bool) -> None:
    async def scene() -> None:
        async with served(Options(tasks=tasks)) as stub:
            bmc = stub.client()
            outcome = await bmc.update_firmware(
                "https://deploy/bmc.bin", ("/redfish/v1/UpdateService/FirmwareInventory/BMC",)
            )
            assert outcome.task_state == ("Completed" if tasks else "NoTask")
            assert [item.version for item in await bmc.firmware()] == ["2.00"]
            with pytest.raises(ValueNotAllowed):
                await bmc.update_firmware("ftp://deploy/bmc.bin")

    run(scene())


def test_a_restart_of_the_bmc_is_waited_for() -> None:
    async def scene() -> None:
        async with served() as stub:
            bmc = stub.client()
            await bmc.reset_bmc()
            assert stub.machine.restarts == 1
            assert (await bmc.power_state()).state is PowerState.OFF

    run(scene())


def test_a_system_is_chosen_by_its_id_and_never_guessed() -> None:
    async def scene() -> None:
        async with served() as stub:
            body = b'{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}, {"@odata.id": "/redfish/v1/Managers/BMC"}]}'
            stub.service.script.add("GET /redfish/v1/Systems$", Fault.BODY, body=body)
            with pytest.raises(NotSupported, match="2 systems"):
                await stub.client().power_state()

    run(scene())
