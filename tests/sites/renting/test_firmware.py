"""A release compares the firmware with the inspection and the list of the model; what is wrong keeps the node, not the tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.problems import AnswerUnreadable
from node_agent.site import boots
from orchestrator.maintenance.states import WindowTaskState
from orchestrator.nodes.commands.firmware_lists import delete_firmware_list, put_firmware_list
from orchestrator.nodes.deploy_systems.run_rules import NEXT_STEPS, FindingCode, Move
from orchestrator.nodes.firmware.rules import Objection
from orchestrator.sites.commands.runs import advance_run
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.stage import INSPECTED, TOPOLOGY
from tests.nodes.answers import body_of
from tests.nodes.maintenance_tasks.running import end
from tests.sites.renting.killed_workers import Workers
from tests.sites.renting.releasing import quarantines, require_released, slots_of
from tests.sites.renting.tenancy import LARGE, LOCAL, SMALL, Renting, Scene
from tests.sites.updates.running import ImageServer, Update
from tests.support.bmc.faults import Fault

BIOS = {"component": "bios", "unit": "smbios", "model": "Contoso", "version": "2.19.1"}
NEWER = {**BIOS, "version": "2.20.0"}
MODEL = {"vendor": "Contoso", "product": "Rack 9"}


async def inspected(rent: Renting, firmware: list[dict[str, str]] | None, model: dict[str, str] | None = MODEL) -> None:
    """A run inspects the cordoned machine, which is put into service again. `firmware` None: a medium of the version before."""
    rent.set_state("cordoned")
    await rent.run.request(network=LOCAL)
    assert await rent.steps() is Move.WORK
    stated = {**(model or {}), "bios_vendor": "Contoso", "bios_version": "2.19.1"}
    report: dict[str, Any] = {**INSPECTED, "topology": {**TOPOLOGY, "disks": [SMALL, LARGE], "firmware": stated}}
    if firmware is not None:
        report["firmware"] = firmware
    await rent.run.report(rent.run.boot(), result=report)
    assert await rent.steps() is Move.CLOSE
    rent.set_state("active")


async def released(
    rent: Renting, firmware: list[dict[str, str]] | None, change: Callable[[], None] | None = None
) -> Move | None:
    """A tenancy, in which `change` happens, and its release, after which the machine states this firmware; the last move."""
    rent.run.machine.service.machine.refused_logins = 0
    await rent.activate()
    if change is not None:
        change()
    await rent.release()
    await rent.clean_up()
    await rent.steps()
    await rent.wipe(firmware=firmware)
    last = await rent.steps()
    await require_released(rent)
    return last


async def listed(rent: Renting, *components: dict[str, Any]) -> dict[str, Any]:
    answer = await put_firmware_list(
        rent.run.stage.api, admin_operation(), ADMIN, vendor="Contoso", product="Rack 9",
        components=[{"model": None, **one} for one in components],
    )  # fmt: skip
    return dict(body_of(answer))


async def findings(rent: Renting) -> list[tuple[str, str]]:
    return [(one["code"], one["detail"]) for one in (await rent.run.shown())["findings"]]


def test_an_inspection_records_what_deploy_system_and_bmc_read(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        firmware, named, report = rent.run.row("select firmware, bmc_firmware, report from node_machines")
        assert firmware == [BIOS]
        assert ("bmc", "1.00") in [(one["component"], one["version"]) for one in named]
        assert "firmware" not in report, "processes of the version before refuse what they do not know"
        assert await released(rent, [BIOS]) is Move.CLOSE
        assert (quarantines(rent), await findings(rent)) == ([], [])

    play(scene)


def test_a_bios_that_changed_during_the_tenancy_keeps_the_node(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        assert await released(rent, [NEWER]) is Move.QUARANTINE
        expected = ("firmware_changed", "bios smbios: 2.19.1 before, 2.20.0 now")
        assert await findings(rent) == [expected]
        taken = quarantines(rent)
        assert [one[:2] for one in taken] == [(slot, "release") for slot in range(slots_of(rent))]
        evidence = json.loads(taken[0][3])
        assert (evidence["code"], evidence["detail"]) == expected
        assert evidence["next_step"] == NEXT_STEPS[FindingCode.FIRMWARE_CHANGED]

    play(scene)


def test_a_bmc_whose_firmware_changed_during_the_tenancy_keeps_the_node(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        stub = rent.run.machine.service.machine

        def flash() -> None:
            stub.firmware = "6.66"

        assert await released(rent, [BIOS], flash) is Move.QUARANTINE
        assert {code for code, _ in await findings(rent)} == {"firmware_changed"}
        assert "bmc BMC: 1.00 before, 6.66 now" in [detail for _, detail in await findings(rent)]

    play(scene)


def test_a_release_compares_with_what_a_proven_update_has_made(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        rent.run.machine.service.machine.options.tasks = True
        async with ImageServer().serving() as images:
            update = Update(rent.run.stage, rent.run.machine, images)
            assert await update.whole() is WindowTaskState.COMPLETED
            assert (await end(rent.run.stage.api, update.window)).status == 200
        rent.run.machine.service.machine.options.tasks = False
        assert await released(rent, [BIOS]) is Move.CLOSE
        assert (quarantines(rent), await findings(rent)) == ([], [])

        def flash() -> None:
            rent.run.machine.service.machine.firmware = "6.66"

        assert await released(rent, [BIOS], flash) is Move.QUARANTINE
        assert "bmc BMC: 2.00 before, 6.66 now" in [detail for _, detail in await findings(rent)]

    play(scene)


def test_the_list_of_the_model_decides_and_another_models_does_not(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        made = await listed(rent, {"component": "bios", "versions": ["2.20.0"]})
        assert await released(rent, [BIOS]) is Move.QUARANTINE
        assert await findings(rent) == [("firmware_not_listed", "bios smbios (Contoso): 2.19.1")]
        rent.run.stage.fleet.connection.execute(
            "update slot_quarantines set returned_at = clock_timestamp(), returned_by = 'a', note = 'n'"
        )
        rent.run.stage.fleet.connection.execute("select keep_slots_v2(%s)", (rent.run.node,))
        again = await listed(rent, {"component": "bios", "versions": ["2.19.1"]})
        assert again["id"] == made["id"], "it replaces the list before"
        assert await released(rent, [BIOS]) is Move.CLOSE
        await listed(rent, {"component": "bmc", "versions": ["9"]}, {"component": "bios", "versions": ["9"]})
        rent.run.stage.fleet.connection.execute("update firmware_lists set product = 'Rack 10'")
        assert await released(rent, [BIOS]) is Move.CLOSE
        removed = await delete_firmware_list(rent.run.stage.api, admin_operation(), ADMIN, made["id"])
        assert removed.status == 204
        said = rent.run.row(
            "select array_agg(action order by id) from audit_pending where action like 'firmware_list.%%'"
        )[0]
        assert said == ["firmware_list.put"] * 3 + ["firmware_list.delete"]
        gone = await delete_firmware_list(rent.run.stage.api, admin_operation(), ADMIN, made["id"])
        assert body_of(gone)["code"] == "not_found"

    play(scene)


def test_an_agent_and_a_medium_of_the_version_before_change_nothing(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(bmc: object) -> None:
        """An agent of the version before does not ask."""

    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        monkeypatch.setattr(boots, "described", silent)
        rent.run.machine.service.machine.firmware = "6.66"
        assert await released(rent, None) is Move.CLOSE
        await listed(rent, {"component": "bios", "versions": ["2.19.1"]}, {"component": "bmc", "versions": ["1.00"]})
        assert await released(rent, None) is Move.QUARANTINE
        assert await findings(rent) == [
            ("firmware_not_read", "bios: no version was read"), ("firmware_not_read", "bmc: no version was read"),
        ], "a list says that the operator relies on what is read"  # fmt: skip

    play(scene)


def test_an_inspection_of_the_version_before_has_its_bios(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, None)
        assert await released(rent, [NEWER]) is Move.QUARANTINE
        assert await findings(rent) == [("firmware_changed", "bios smbios: 2.19.1 before, 2.20.0 now")]

    play(scene)


def test_a_bmc_that_does_not_give_its_inventory_has_changed_nothing(
    play: Callable[[Scene], None],
) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        rent.run.machine.service.script.add("GET .*/FirmwareInventory", Fault.ERROR, times=1000)
        assert await released(rent, [BIOS]) is Move.CLOSE
        assert rent.run.machine.service.machine.power == "Off"

    play(scene)


def test_a_description_that_fails_does_not_fail_the_end(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(bmc: object) -> None:
        raise AnswerUnreadable("no system")

    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        monkeypatch.setattr(RedfishBmc, "describe", failing)
        assert await released(rent, [BIOS]) is Move.CLOSE
        assert rent.run.machine.service.machine.power == "Off"

    play(scene)


@pytest.mark.full
def test_a_worker_that_dies_while_it_compares_has_done_nothing(
    database_url: str, play: Callable[[Scene], None]
) -> None:
    async def scene(rent: Renting) -> None:
        await inspected(rent, [BIOS])
        rent.run.stage.fleet.connection.execute("update node_bmcs set rotates_at_release = false")
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe(firmware=[NEWER])
        assert await rent.run.advance() is Move.END
        await rent.run.perform()
        workers, number = Workers(database_url, rent.run), 0
        while not quarantines(rent):
            number += 1
            await workers.killed(number, lambda context: advance_run(context, rent.run.node))
            assert (rent.task["state"] == "queued") is not bool(quarantines(rent)), "both, or neither"
        assert workers.deaths > 10
        await require_released(rent)

    play(scene)


def test_every_objection_is_a_finding_with_a_next_step() -> None:
    assert {one.value for one in Objection} <= {one.value for one in FindingCode}
    assert set(NEXT_STEPS) == set(FindingCode)
