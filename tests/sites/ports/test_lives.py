"""The ports of a rented machine over its life: on a real switch with probes from outside, and by drivers that move nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from node_agent.switches.noop import NoopSwitch
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.nodes.deploy_systems.run_rules import Move
from tests.sites.ports.placed import (
    PORT,
    PROVISIONING,
    TENANT_A,
    connect,
    is_claimed,
    leased,
    release,
    shown,
    steps_of,
    vlan_of,
)
from tests.sites.renting.tenancy import Renting, Scene
from tests.switches.lab import MACHINE, MODES, laboratory
from tests.switches.scripted import ScriptedSwitch

WITHOUT = ["power_off", "start", "work", "end", "power_on", "reach"]
EVENTS = """
select payload ->> 'place', payload -> 'vlan', payload ->> 'isolation', payload ->> 'outcome' from outbox
where event_type = 'node.ports_moved' order by id
"""


async def deployed(rent: Renting) -> list[str]:
    """The tenant creates, and its machine is deployed; the steps of the run."""
    rent.create()
    await rent.provision()
    steps = await steps_of(rent)
    await rent.deploy()
    steps += await steps_of(rent)
    await rent.provisioned()
    assert rent.row["state"] == "active", rent.row
    return steps


@pytest.mark.parametrize("mode", MODES)
def test_a_tenants_machine_is_isolated_from_its_first_start_to_its_wipe(
    play: Callable[[Scene], None], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}/usr/sbin")

    async def scene(rent: Renting) -> None:
        rent.run.stage.settle_seconds = 5.0
        await connect(rent.run, lab.switch(), MACHINE)
        rent.create()
        await rent.provision()
        assert await steps_of(rent, "start") == ["power_off", "to_provisioning", "start"]
        assert lab.reached() == {"deploy", "bmc"}, "the deploy system reaches its server"
        assert await steps_of(rent) == ["work"]
        await rent.deploy()
        assert await steps_of(rent, "power_on") == ["end", "to_tenant", "power_on"]
        assert rent.run.machine.service.machine.power == "Off"
        assert lab.reached() == {"a2"}, "before the tenant's system starts"
        await steps_of(rent)
        await rent.provisioned()
        assert rent.row["state"] == "active"
        run = await rent.run.shown()
        assert (run["outcome"], run["isolation"]) == ("completed", "vlan")
        assert lab.reached() == {"a2"}
        found = await shown(rent.run)
        assert (found["place"], found["vlan"], found["isolation"]) == ("tenant", TENANT_A, "vlan")
        assert [one["segments"] for one in found["found"]] == [[TENANT_A]]

        await rent.release()
        await rent.clean_up()
        assert await steps_of(rent, "start") == ["power_off", "to_provisioning", "start"]
        assert lab.reached() == {"deploy", "bmc"}, "before the machine boots again"
        await steps_of(rent)
        await rent.wipe()
        await steps_of(rent)
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED
        assert lab.reached() == {"deploy", "bmc"}

    with laboratory(mode) as lab:
        play(scene)


def test_a_run_without_ports_has_no_step_for_them_and_says_so(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        assert await deployed(rent) == WITHOUT
        assert (await rent.run.shown())["isolation"] == "none"
        assert (await shown(rent.run))["ports"] == []
        assert "to_provisioning" not in await release(rent)

    play(scene)


def test_noop_goes_through_the_steps_and_says_that_nothing_separates(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await connect(rent.run, NoopSwitch())
        assert await deployed(rent) == [
            "power_off", "to_provisioning", "start", "work", "end", "to_tenant", "power_on", "reach",
        ]  # fmt: skip
        assert (await rent.run.shown())["isolation"] == "none"
        found = await shown(rent.run)
        assert (found["isolation"], found["found"][0]["driver"]) == ("none", "noop")
        evidence = rent.run.row(
            "select result -> 'evidence' ->> 'isolation' from node_tasks where result -> 'evidence' ? 'root_disk'"
        )
        assert evidence[0] == "none"

    play(scene)


def test_the_ports_are_moved_twice_in_a_life_and_by_no_verb(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await deployed(rent)
        assert [vlan for _, vlan, _ in switch.writes] == [PROVISIONING, TENANT_A]
        for verb in (Verb.STOP, Verb.START, Verb.REBOOT):
            await rent.order(verb)
            steps = await steps_of(rent)
            assert not {"to_provisioning", "to_tenant"} & set(steps)
            assert (await rent.ordered()).code is None
            assert (await rent.run.shown())["isolation"] == ("none" if verb is Verb.STOP else "vlan")
        assert len(switch.writes) == 2
        assert switch.vlan(PORT) == TENANT_A
        await rent.order(Verb.REBUILD)
        await rent.steps()
        await rent.deploy()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.ordered()).code is None
        assert [vlan for _, vlan, _ in switch.writes[2:]] == [PROVISIONING, TENANT_A], "a rebuild is a deployment"
        fences = [fence for _, _, fence in switch.writes]
        assert fences == sorted(set(fences))

    play(scene)


def test_a_tenant_has_its_segment_until_its_last_machine_has_left_it(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await connect(rent.run, ScriptedSwitch())
        await deployed(rent)
        (segment,) = await leased(rent.run.stage)
        assert (segment["vlan"], segment["machines"], segment["free_at"]) == (TENANT_A, 1, None)
        assert segment["tenant_id"] == str(rent.seeded.tenant_id)
        await release(rent)
        assert not is_claimed(rent)
        (segment,) = await leased(rent.run.stage)
        assert (segment["machines"], vlan_of(rent.run)) == (0, None)
        assert segment["free_at"] > segment["returned_at"]
        events = rent.run.stage.fleet.connection.execute(EVENTS).fetchall()
        assert events == [
            ("provisioning", PROVISIONING, "vlan", "completed"),
            ("tenant", TENANT_A, "vlan", "completed"),
            ("provisioning", PROVISIONING, "vlan", "completed"),
        ]

    play(scene)


def test_a_machine_whose_ports_are_moved_has_no_rescue_system(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await deployed(rent)
        await rent.order(Verb.RESCUE)
        assert await rent.run.advance() is Move.REFUSE
        concluded = await rent.ordered()
        assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, "task_refused")
        assert rent.row["guest_failure_detail"].startswith("port_isolated")
        assert (switch.vlan(PORT), rent.run.machine.service.machine.power) == (TENANT_A, "On")

    play(scene)
