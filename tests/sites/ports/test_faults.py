"""Switches that lie, are silent or refuse, and ports that another system moves: no machine is switched on in a wrong segment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from node_agent.switches.contract import PortState
from node_agent.wire.switches import Segment
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.nodes.deploy_systems.run_rules import PORT_ATTEMPTS_MAX, Move
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from orchestrator.sites.ports.rules import Verb as PortVerb
from tests.at_length import at_length
from tests.sites.ports.placed import (
    PORT,
    PROVISIONING,
    SWITCH,
    TENANT_A,
    connect,
    is_claimed,
    leased,
    move,
    release,
    set_segments,
    shown,
    steps_of,
    vlan_of,
)
from tests.sites.renting.tenancy import Renting, Scene
from tests.sites.running import Run
from tests.switches.scripted import Fault, ScriptedSwitch

CODES = {Fault.LIE: "port_not_moved", Fault.SILENT: "switch_unanswered", Fault.REFUSE: "switch_refused"}


class Watched(ScriptedSwitch):
    """Remembers whether the machine was off whenever its port was written."""

    def __init__(self, run: Run, *faults: Fault) -> None:
        super().__init__(list(faults))
        self.run = run
        self.powers: list[str] = []

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        self.powers.append(self.run.machine.service.machine.power)
        await super().write(port, segment, fence)


async def to_active(rent: Renting, switch: ScriptedSwitch) -> None:
    """The tenant's machine is active, behind this switch."""
    await connect(rent.run, switch)
    await rent.activate()


@pytest.mark.parametrize("fault", CODES)
def test_a_deploy_system_does_not_start_before_its_segment_is_proven(
    play: Callable[[Scene], None], fault: Fault
) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = Watched(rent.run, *[fault] * PORT_ATTEMPTS_MAX)
        await connect(rent.run, switch)
        rent.create()
        await rent.provision()
        assert await steps_of(rent) == ["power_off", "to_provisioning"]
        run = await rent.run.shown()
        assert (run["outcome"], run["step"], run["deploy_epoch"]) == ("failed", "to_provisioning", None)
        assert run["failure"].startswith(CODES[fault])
        assert (len(switch.writes), machine.effects.count("On"), machine.power) == (PORT_ATTEMPTS_MAX, 0, "Off")
        assert set(switch.powers) == {"Off"}
        concluded = await rent.provisioned()
        assert (concluded.state, concluded.code) == (AllocationState.FAILED, "machine_run_failed")
        assert is_claimed(rent), "the node serves no other tenant before a wipe is proven"
        assert (await shown(rent.run))["proven_at"] is None

    play(scene)


def test_a_fault_that_passes_costs_attempts_and_nothing_else(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = Watched(rent.run, Fault.LIE, Fault.SILENT, Fault.NONE, Fault.REFUSE, Fault.LOST)
        await to_active(rent, switch)
        assert set(switch.powers) == {"Off"}
        assert [vlan for _, vlan, _ in switch.writes] == [PROVISIONING] * 3 + [TENANT_A] * 2

    play(scene)


@pytest.mark.parametrize("fault", at_length(CODES, [Fault.LIE]))
def test_a_tenants_system_does_not_start_before_its_segment_is_proven(
    play: Callable[[Scene], None], fault: Fault
) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = Watched(rent.run, Fault.NONE, *[fault] * PORT_ATTEMPTS_MAX)
        await connect(rent.run, switch)
        rent.create()
        await rent.provision()
        await steps_of(rent)
        await rent.deploy()
        started = machine.effects.count("On")
        assert await steps_of(rent) == ["end", "to_tenant", "end"], "it is made sure that the machine is off"
        run = await rent.run.shown()
        assert run["outcome"] == "failed"
        assert run["failure"].startswith(CODES[fault])
        assert (machine.effects.count("On"), rent.run.is_undone()) == (started, True)
        assert (await rent.provisioned()).state is AllocationState.FAILED
        assert is_claimed(rent)
        assert (vlan_of(rent.run), (await leased(rent.run.stage))[0]["free_at"]) == (TENANT_A, None), "it may carry it"

    play(scene)


def test_a_release_waits_for_its_switch_and_keeps_units_and_segment(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = ScriptedSwitch()
        await to_active(rent, switch)
        switch.faults = [Fault.SILENT] * PORT_ATTEMPTS_MAX
        started = machine.effects.count("On")
        await rent.release()
        await rent.clean_up()
        assert await steps_of(rent) == ["power_off", "to_provisioning"]
        assert (machine.power, machine.effects.count("On")) == ("Off", started), "the machine is off, and stays so"
        await rent.cleaned_up()
        assert is_claimed(rent)
        assert (vlan_of(rent.run), switch.vlan(PORT)) == (TENANT_A, TENANT_A)
        await rent.clean_up("releasing-2")
        await steps_of(rent)
        await rent.wipe()
        await steps_of(rent)
        assert (await rent.cleaned_up("releasing-2")).state is AllocationState.RELEASED
        assert (vlan_of(rent.run), switch.vlan(PORT)) == (None, PROVISIONING)

    play(scene)


@pytest.mark.parametrize(("before", "vlan"), [("start", TENANT_A), ("power_on", PROVISIONING)])
def test_a_port_that_is_moved_before_power_on_keeps_the_machine_off(
    play: Callable[[Scene], None], before: str, vlan: int
) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        rent.create()
        await rent.provision()
        while not await rent.is_at(before):
            if (await rent.run.shown())["step"] == "work":
                await rent.deploy()
            await steps_of(rent, before)
        started = machine.effects.count("On")
        switch.put(PORT, vlan)
        await steps_of(rent)
        run = await rent.run.shown()
        assert run["outcome"] == "failed"
        assert run["failure"].startswith("port_moved")
        assert (machine.effects.count("On"), machine.power) == (started, "Off")

    play(scene)


@pytest.mark.parametrize("verb", at_length([Verb.START, Verb.REBOOT], [Verb.REBOOT]))
def test_a_tenants_machine_is_not_switched_on_in_another_segment(play: Callable[[Scene], None], verb: Verb) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        switch = ScriptedSwitch()
        await to_active(rent, switch)
        if verb is Verb.START:
            await rent.order(Verb.STOP)
            await steps_of(rent)
            await rent.ordered()
        switch.put(PORT, PROVISIONING)
        await rent.order(verb)
        await steps_of(rent)
        assert (await rent.ordered()).code == "machine_run_failed"
        assert rent.row["guest_failure_detail"].startswith("port_moved")
        assert machine.power == "Off"
        assert (await move(rent.run, PortVerb.CHECK)).status == 200
        await rent.run.perform()
        found = await shown(rent.run)
        assert found["task"]["failure"].startswith("port_moved")
        assert found["proven_at"] is None
        assert (await move(rent.run, PortVerb.TENANT)).status == 200
        await rent.run.perform()
        found = await shown(rent.run)
        assert (found["vlan"], found["isolation"], switch.vlan(PORT)) == (TENANT_A, "vlan", TENANT_A)
        await rent.order(Verb.REBOOT)
        await steps_of(rent)
        assert ((await rent.ordered()).code, machine.power) == (None, "On")

    play(scene)


def test_an_agent_without_the_switch_starts_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        rent.run.stage.switches.clear()
        rent.create()
        await rent.provision()
        await steps_of(rent)
        run = await rent.run.shown()
        assert (run["outcome"], run["failure"].split(":")[0]) == ("failed", "switch_unknown")
        moves = rent.run.row("select count(*) from audit_pending where detail ->> 'kind' = 'move_ports'")
        assert moves[0] == 1, "another attempt cannot help"
        rent.run.stage.switches[SWITCH] = switch
        await rent.provisioned()

    play(scene)


def test_segments_that_are_exhausted_fail_the_deployment_by_name(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await set_segments(rent.run.stage, vlans=(TENANT_A, TENANT_A))
        other = rent.run.stage.fleet.tenant().id
        rent.run.stage.fleet.connection.execute(
            "insert into tenant_segments (site_id, vlan, tenant_id, fence) values (%s, %s, %s, 1)",
            (rent.run.stage.site_id, TENANT_A, other),
        )
        rent.create()
        await rent.provision()
        await steps_of(rent)
        await rent.deploy()
        await steps_of(rent, "to_tenant")
        task = rent.run.row(
            "select bmc_task_id from deploy_runs where node_id = %s and ended_at is null", rent.run.node
        )
        assert await advance_bmc_task(rent.run.stage.worker, task[0]) is Advanced.FAILED
        await steps_of(rent)
        run = await rent.run.shown()
        assert run["failure"].startswith("segments_exhausted")
        assert rent.run.is_undone()
        assert vlan_of(rent.run) is None

    play(scene)


@pytest.mark.parametrize("step", at_length(["to_provisioning", "to_tenant"], ["to_tenant"]))
@pytest.mark.parametrize("is_signed", [False, True])
def test_a_release_at_a_move_of_the_ports_undoes_the_deployment(
    play: Callable[[Scene], None], step: str, is_signed: bool
) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        rent.create()
        await rent.provision()
        while not await rent.is_at(step):
            if (await rent.run.shown() if await rent.run.advance() is None else {}).get("step") == "work":
                await rent.deploy()
            await steps_of(rent, step)
        if is_signed:
            rent.run.machine.task_id = rent.run.row(
                "select id from bmc_tasks where node_id = %s and ended_at is null", rent.run.node
            )[0]
            await rent.run.stage.take(rent.run.stage.first, rent.run.machine)
        await release(rent)
        assert rent.row["state"] == "released"
        assert (switch.vlan(PORT), vlan_of(rent.run), rent.run.is_undone()) == (PROVISIONING, None, True)

    play(scene)


def test_a_report_without_ports_completes_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        class Empty(ScriptedSwitch):
            async def read(self, port: str) -> PortState:
                raise RuntimeError("a defect of a driver")

        await connect(rent.run, Empty())
        rent.create()
        await rent.provision()
        await steps_of(rent)
        run = await rent.run.shown()
        assert (run["outcome"], run["failure"]) == ("failed", "agent_error: RuntimeError")
        assert rent.run.machine.service.machine.effects.count("On") == 0
        assert await rent.run.advance() is not Move.START

    play(scene)
