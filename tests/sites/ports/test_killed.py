"""Agents and workers die at every step of a move of ports: the next one goes on, and the machine starts in the right segment.

`tests/sites/ports/test_killed_agents.py` kills processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from node_agent.site.lease import LeaseEnded
from node_agent.switches.contract import PortState
from node_agent.wire.switches import Segment
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.sites.commands.runs import advance_run
from orchestrator.sites.commands.tasks import advance_bmc_task
from tests.at_length import at_length
from tests.sites.ports.placed import PORT, PROVISIONING, TENANT_A, connect, leased, release, steps_of, vlan_of
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.tenancy import Renting, Scene
from tests.sites.rotations import Killed
from tests.switches.scripted import ScriptedSwitch

CALLS = 4
"""Of a move: a read, a write that is reached and one that has its effect, and the read back."""


class Dying(ScriptedSwitch):
    """The agent dies right before its call of this number, or right after the effect of a write; None: never."""

    at: int | None = None
    calls = 0

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.at = None
            raise Killed

    async def read(self, port: str) -> PortState:
        self._call()
        return await super().read(port)

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        self._call()
        await super().write(port, segment, fence)
        self._call()


async def to_step(rent: Renting, step: str) -> None:
    """The deployment of the tenant's machine is at this step."""
    rent.create()
    await rent.provision()
    await steps_of(rent, step)
    if step == "to_tenant":
        await rent.deploy()
        await steps_of(rent, step)


@pytest.mark.parametrize("step", at_length(["to_provisioning", "to_tenant"], ["to_tenant"]))
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_another_agent_goes_on_from_wherever_one_died(play: Callable[[Scene], None], step: str, at: int) -> None:
    async def scene(rent: Renting) -> None:
        switch = Dying()
        await connect(rent.run, switch)
        await to_step(rent, step)
        switch.calls, switch.at = 0, at
        with pytest.raises(Killed):
            await rent.run.perform()
        assert rent.run.machine.service.machine.power == "Off"
        await rent.run.perform(rent.run.stage.second)
        assert switch.vlan(PORT) == (PROVISIONING if step == "to_provisioning" else TENANT_A)
        assert await rent.run.advance() is (Move.START if step == "to_provisioning" else Move.POWER_ON)
        if step == "to_tenant":
            await steps_of(rent)
            await rent.provisioned()
            assert rent.row["state"] == "active"

    play(scene)


def test_an_agent_whose_lease_has_ended_writes_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        class Slow(ScriptedSwitch):
            async def read(self, port: str) -> PortState:
                if rent.run.stage.first.lease.fence and not self.writes:
                    rent.run.stage.first.seconds += 60  # its lease is over when the answer arrives
                return await super().read(port)

        switch = Slow()
        await connect(rent.run, switch)
        await to_step(rent, "to_provisioning")
        with pytest.raises(LeaseEnded):
            await rent.run.perform()
        assert switch.writes == []
        await rent.run.perform(rent.run.stage.second)
        assert switch.vlan(PORT) == PROVISIONING

    play(scene)


@pytest.mark.parametrize(
    "numbers", [pytest.param([QUICK], id="one"), pytest.param(None, id="every", marks=pytest.mark.full)]
)
def test_a_worker_that_dies_leaves_the_step_before(
    database_url: str, play: Callable[[Scene], None], numbers: list[int] | None
) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        for number in numbers or itertools.count(1):
            workers = Workers(database_url, rent.run)
            rent.run.machine.service.machine.refused_logins = 0  # since the last tenancy the BMC has forgotten them
            rent.create()
            await rent.provision()
            while rent.task["state"] == "queued":
                await workers.killed(number, lambda context: advance_run(context, rent.run.node))
                if rent.task["state"] != "queued" or await rent.run.advance() is not None:
                    continue
                if (await rent.run.shown())["step"] == "work":
                    await rent.deploy()
                    continue
                found = rent.run.row("select id from bmc_tasks where node_id = %s and ended_at is null", rent.run.node)
                task = found[0]
                await workers.killed(number, lambda context, task=task: advance_bmc_task(context, task))  # type: ignore[misc]
                await rent.run.perform()
            await rent.provisioned()
            assert rent.row["state"] == "active"
            assert (switch.vlan(PORT), vlan_of(rent.run)) == (TENANT_A, TENANT_A)
            assert len(await leased(rent.run.stage)) == 1
            await release(rent)
            assert (switch.vlan(PORT), vlan_of(rent.run)) == (PROVISIONING, None)
            if not workers.deaths:
                break
        assert numbers or number > QUICK

    play(scene)
