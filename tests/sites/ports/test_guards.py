"""A tenant's system starts in the segment of its tenant alone, whatever has failed before."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from berth.cli.deployment.isolation_finding import isolation_finding
from migrations.roles import Role
from node_agent.wire.sites import BmcTaskKind
from orchestrator.allocations.states import Verb
from orchestrator.nodes.deploy_systems.run_rules import PORT_ATTEMPTS_MAX
from orchestrator.sites.commands.bmcs import request_bmc_task
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.at_length import at_length
from tests.databases import as_role
from tests.sites.ports.placed import PORT, PROVISIONING, TENANT_A, connect, restored, shown, steps_of
from tests.sites.renting.tenancy import Renting, Scene
from tests.switches.scripted import Fault, ScriptedSwitch

BAD_IMAGE = {"code": "image_download_failed", "detail": "x"}


async def failed_rebuild(rent: Renting) -> ScriptedSwitch:
    """The machine is the tenant's and off, and its port in the provisioning segment; its switch."""
    switch = ScriptedSwitch()
    await connect(rent.run, switch)
    await rent.activate()
    await rent.order(Verb.REBUILD)
    await steps_of(rent)
    await rent.run.report(rent.run.boot(), failure=BAD_IMAGE)
    await steps_of(rent)
    assert (await rent.ordered()).code == "image_download_failed"
    assert (rent.row["state"], switch.vlan(PORT)) == ("active", PROVISIONING)
    return switch


def open_task(rent: Renting) -> uuid.UUID:
    """The open task of the machine's BMC."""
    row = rent.run.row("select id from bmc_tasks where node_id = %s and ended_at is null", rent.run.node)
    found: uuid.UUID = row[0]
    return found


@pytest.mark.parametrize("verb", at_length([Verb.START, Verb.REBOOT], [Verb.REBOOT]))
def test_a_switch_after_a_failed_rebuild_moves_the_ports_first(play: Callable[[Scene], None], verb: Verb) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = await failed_rebuild(rent)
        machine.power = "On"
        await rent.order(verb)
        assert await steps_of(rent, "power_on") == ["end", "to_tenant", "power_on"]
        assert (machine.power, switch.vlan(PORT)) == ("Off", TENANT_A)
        await steps_of(rent)
        assert ((await rent.ordered()).code, machine.power) == (None, "On")
        found = await shown(rent.run)
        assert (found["place"], found["vlan"]) == ("tenant", TENANT_A)

    play(scene)


def test_a_start_after_a_move_that_failed_stays_off_until_it_is_proven(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = await failed_rebuild(rent)
        switch.faults = [Fault.SILENT] * PORT_ATTEMPTS_MAX
        await rent.order(Verb.START)
        assert await steps_of(rent) == ["end", "to_tenant"]
        assert ((await rent.ordered()).code, machine.power) == ("machine_run_failed", "Off")
        await rent.order(Verb.START)
        assert (await steps_of(rent))[:2] == ["end", "to_tenant"], "an unproven move is none"
        assert ((await rent.ordered()).code, machine.power, switch.vlan(PORT)) == (None, "On", TENANT_A)

    play(scene)


def test_no_task_of_a_run_switches_a_tenants_machine_on_in_another_segment(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        await connect(rent.run, ScriptedSwitch())
        await rent.activate()
        await rent.order(Verb.REBOOT)
        await steps_of(rent, "power_on")
        rent.run.stage.fleet.connection.execute("update node_segments set place = 'provisioning', vlan = 100")
        assert await advance_bmc_task(rent.run.stage.worker, open_task(rent)) is Advanced.FAILED
        await steps_of(rent)
        assert (await rent.ordered()).code == "machine_run_failed"
        assert rent.row["guest_failure_detail"].startswith("not_in_tenant_segment")
        assert machine.power == "Off"

    play(scene)


def test_doctor_names_rented_machines_outside_their_segment(database_url: str, play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        url = as_role(database_url, Role.OPERATOR)
        await failed_rebuild(rent)
        rent.run.stage.fleet.connection.execute("update nodes set driver = 'redfish', enrolled_at = null")
        name = rent.run.row("select name from nodes where id = %s", rent.run.node)[0]
        found = isolation_finding(url)
        assert found.verdict == "warning"
        assert f"rented and not in the segment of its tenant: {name}" in found.detail
        await rent.order(Verb.START)
        await steps_of(rent)
        assert isolation_finding(url).verdict == "ok"

    play(scene)


async def power_on(rent: Renting) -> str | None:
    """An operator's `berth node power NODE on`; its failure."""
    answer = await request_bmc_task(
        rent.run.stage.api, admin_operation(), ADMIN, rent.run.node, BmcTaskKind.POWER_ON
    )  # fmt: skip
    assert answer.status == 200, answer
    task = open_task(rent)
    if await advance_bmc_task(rent.run.stage.worker, task) is Advanced.ISSUED:
        rent.run.machine.task_id = task
        await rent.run.perform()
    failure: str | None = rent.run.row("select failure from bmc_tasks where id = %s", task)[0]
    return None if failure is None else failure.partition(":")[0]


def test_an_operator_does_not_switch_on_a_machine_in_a_wrong_segment(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await rent.activate()
        machine.power = "Off"
        assert (await power_on(rent), machine.power) == (None, "On"), "in its tenant's segment"
        machine.power = "Off"
        switch.put(PORT, PROVISIONING)
        assert (await power_on(rent), machine.power) == ("port_moved", "Off")
        switch.put(PORT, TENANT_A)
        await rent.release()
        await rent.clean_up()
        await steps_of(rent)
        await rent.run.report(rent.run.boot(), failure={"code": "wipe_not_proven", "detail": "x"})
        await steps_of(rent)
        await rent.cleaned_up()
        assert switch.vlan(PORT) == PROVISIONING
        assert (await power_on(rent), machine.power) == ("not_in_tenant_segment", "Off"), "its system is on the disks"

    play(scene)


def test_a_tenants_system_stays_off_while_segments_are_unknown_since_a_restore(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await failed_rebuild(rent)
        await rent.order(Verb.START)
        await steps_of(rent, "to_tenant")
        restored(rent.run.stage, rent.run.node)
        assert await advance_bmc_task(rent.run.stage.worker, open_task(rent)) is Advanced.FAILED
        await steps_of(rent)
        assert (await rent.ordered()).code == "machine_run_failed"
        assert rent.row["guest_failure_detail"].startswith("segments_unknown")
        assert rent.run.machine.service.machine.power == "Off"

    play(scene)
