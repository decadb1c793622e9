"""What proves where ports are: each port of the task, read back by a driver that has moved it. Anything else returns no VLAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_agent.site.ports import SitePorts
from node_agent.switches.noop import NoopSwitch
from node_agent.wire.switches import PortFound, PortOrder, Segment, SwitchPort
from orchestrator.allocations.states import Verb
from orchestrator.sites.ports.proofs import objection
from tests.at_length import at_length
from tests.sites.ports.placed import PORT, SWITCH, TENANT_A, connect, leased, steps_of, vlan_of
from tests.sites.renting.tenancy import Renting, Scene
from tests.switches.scripted import ScriptedSwitch

FOUND = PortFound(switch=SWITCH, port=PORT, driver="scripted", isolation="vlan", segments=[7])


@pytest.mark.parametrize("is_old_agent", at_length([False, True], [False]))
def test_a_driver_that_moves_nothing_does_not_return_the_vlan_of_a_port(
    play: Callable[[Scene], None], is_old_agent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_old_agent:
        monkeypatch.setattr(SitePorts, "_switch_of", lambda self, port: self._switches[port.switch])

    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await rent.activate()
        rent.run.stage.switches[SWITCH] = NoopSwitch()
        await rent.release()
        await rent.clean_up()
        await steps_of(rent)
        run = await rent.run.shown()
        assert (run["outcome"], run["failure"].partition(":")[0]) == ("failed", "not_read_back")
        (segment,) = await leased(rent.run.stage)
        assert (vlan_of(rent.run), switch.vlan(PORT), segment["returned_at"]) == (TENANT_A, TENANT_A, None)
        rent.run.stage.switches[SWITCH] = switch
        await rent.cleaned_up()
        await rent.clean_up("releasing-2")
        await steps_of(rent)
        await rent.wipe()
        await steps_of(rent)
        await rent.cleaned_up("releasing-2")
        assert (rent.row["state"], vlan_of(rent.run)) == ("released", None)

    play(scene)


def test_a_tenants_machine_is_not_switched_on_behind_a_driver_that_reads_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await rent.activate()
        rent.run.stage.switches[SWITCH] = NoopSwitch()
        await rent.order(Verb.REBOOT)
        await steps_of(rent)
        await rent.ordered()
        assert rent.row["guest_failure_detail"].startswith("not_read_back")
        assert rent.run.machine.service.machine.power == "Off"

    play(scene)


@pytest.mark.parametrize("changes", [{"switch": "leaf-9"}, {"segments": [7, 8]}, {"is_shut": True}])
def test_a_report_of_other_ports_or_segments_proves_nothing(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    async def scene(rent: Renting) -> None:
        await connect(rent.run, ScriptedSwitch())
        honest = SitePorts.carry_out

        async def lies(*order: Any) -> list[PortFound]:
            return [one.model_copy(update=changes) for one in await honest(*order)]

        monkeypatch.setattr(SitePorts, "carry_out", lies)
        rent.create()
        await rent.provision()
        await steps_of(rent)
        run = await rent.run.shown()
        assert (run["outcome"], run["failure"].partition(":")[0]) == ("failed", "bad_report")
        assert rent.run.row("select proven_at from node_segments")[0] is None
        assert rent.run.machine.service.machine.effects.count("On") == 0

    play(scene)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([FOUND], None),
        ([], "bad_report"),
        ([FOUND, FOUND], "bad_report"),
        ([FOUND, FOUND.model_copy(update={"port": "p2"})], "bad_report"),
        ([FOUND.model_copy(update={"segments": [8]})], "bad_report"),
        ([PortFound(switch=SWITCH, port=PORT, driver="noop", isolation="none")], "not_read_back"),
    ],
)
def test_each_port_of_the_task_is_read_as_ordered(found: list[PortFound], code: str | None) -> None:
    order = PortOrder(ports=[SwitchPort(switch=SWITCH, port=PORT)], segment=Segment(number=7))
    said = objection(order, found, {(SWITCH, PORT)})
    assert said is None if code is None else said is not None and said.startswith(code)
    shut = FOUND.model_copy(update={"segments": [], "is_shut": True})
    assert objection(order.model_copy(update={"segment": None}), [shut], set()) is None
