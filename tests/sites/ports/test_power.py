"""No port stays open in the provisioning VLAN under a machine that is on: a tenant's system may have set an alarm clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from node_agent.switches.contract import PortState
from node_agent.wire.switches import Segment
from orchestrator.sites.ports.rules import Verb
from tests.at_length import at_length
from tests.sites.ports.placed import PORT, connect, move, shown, steps_of
from tests.sites.renting.tenancy import Renting, Scene
from tests.sites.running import Run
from tests.support.bmc.faults import Fault
from tests.switches.scripted import ScriptedSwitch


class Waking(ScriptedSwitch):
    """The machine comes on while its port is written to another segment than that of its tenant, in a read or in a write."""

    run: Run | None = None

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        await super().write(port, segment, fence)
        if self.run is not None and segment is not None:
            self.run.machine.service.machine.power = "On"


@pytest.mark.parametrize("wakes", at_length(["before", "between", "after"], ["between"]))
def test_a_machine_that_comes_on_is_in_no_segment(play: Callable[[Scene], None], wakes: str) -> None:
    async def scene(rent: Renting) -> None:
        machine, switch = rent.run.machine.service.machine, Waking()
        await connect(rent.run, switch)
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        await steps_of(rent, "to_provisioning" if wakes != "after" else "start")
        if wakes == "between":
            switch.run = rent.run
        else:
            machine.power = "On"
        await steps_of(rent)
        run = await rent.run.shown()
        assert (run["outcome"], run["failure"].partition(":")[0]) == ("failed", "machine_on")
        assert run["step"] == ("end" if wakes == "after" else "to_provisioning")
        assert switch.ports[PORT] == PortState(frozenset(), None, True, switch.ports[PORT].fence)
        assert rent.row["state"] == "releasing"
        switch.run = None
        await rent.cleaned_up()
        await rent.clean_up("releasing-2")
        await steps_of(rent)
        await rent.wipe()
        await steps_of(rent)
        await rent.cleaned_up("releasing-2")
        assert rent.row["state"] == "released", "the next run switches it off first"

    play(scene)


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_operator_moves_no_machine_into_the_provisioning_segment_that_is_on(
    play: Callable[[Scene], None], is_silent: bool
) -> None:
    async def scene(rent: Renting) -> None:
        switch, service = ScriptedSwitch(), rent.run.machine.service
        await connect(rent.run, switch)
        rent.set_state("cordoned")
        service.machine.power = "Off" if is_silent else "On"
        if is_silent:
            service.script.add("Systems", Fault.BROKEN_BEFORE, times=100)
        assert (await move(rent.run, Verb.PROVISIONING)).status == 200
        await rent.run.perform()
        found = await shown(rent.run)
        code = found["task"]["failure"].partition(":")[0]
        assert (code == "machine_on") is not is_silent, code
        assert (switch.vlan(PORT), switch.ports[PORT].is_shut, found["proven_at"]) == (None, True, None)

    play(scene)
