"""Every driver of switches against the contract, on a real switch, with probes from outside. `noop` must fail the probe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from node_agent.switches.contract import (
    FenceOlder,
    NotBuilt,
    PortMoved,
    PortState,
    PortUnknown,
    SegmentUnknown,
    Switch,
    SwitchProblem,
)
from node_agent.switches.listed import DRIVERS
from node_agent.switches.noop import NoopSwitch
from node_agent.switches.placing import PlacingTimes, place, require_placed
from node_agent.wire.switches import Segment, SegmentKind
from tests.switches.lab import (
    BRIDGES,
    FILTERING,
    MACHINE,
    MODES,
    PROVISIONING,
    TENANT_A,
    TENANT_B,
    Lab,
    laboratory,
    sh,
)

TIMES = PlacingTimes(settle_seconds=5.0, poll_seconds=0.1)
A, B, P = (Segment(number=vlan) for vlan in (TENANT_A, TENANT_B, PROVISIONING))
NEIGHBOURS = {PROVISIONING: {"deploy", "bmc"}, TENANT_A: {"a2"}, TENANT_B: {"b1"}}


@pytest.fixture(scope="module", params=MODES)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    with laboratory(request.param) as made:
        yield made


@pytest.fixture
def fence() -> int:
    """Newer than that of every test before."""
    _FENCES.append(_FENCES[-1] + 10)
    return _FENCES[-1]


_FENCES = [100]


def moved(switch: Switch, segment: Segment | None, fence: int, port: str = MACHINE) -> PortState:
    return asyncio.run(place(switch, port, segment, fence, lambda: None, TIMES))


def read(switch: Switch) -> PortState:
    return asyncio.run(switch.read(MACHINE))


def isolates(lab: Lab, switch: Switch, fence: int) -> bool:
    """The probe: whether the machine reaches the neighbours of each segment that it is moved to, and nothing else."""
    for number, segment in enumerate((P, A, B, A, P)):
        moved(switch, segment, fence + number)
        if lab.reached() != NEIGHBOURS[segment.number]:
            return False
    return True


def test_a_driver_isolates_as_it_says(lab: Lab, fence: int) -> None:
    assert isolates(lab, lab.switch(), fence)


def test_noop_fails_the_probe_and_says_that_it_does_not_isolate(lab: Lab, fence: int) -> None:
    lab.put(MACHINE, TENANT_B)
    assert not isolates(lab, NoopSwitch(), fence)
    assert NoopSwitch.isolation == "none"
    assert lab.reached() == {"b1"}, "it has moved nothing"
    assert asyncio.run(require_placed(NoopSwitch(), MACHINE, A, lambda: None)) == PortState(frozenset(), None, False)


def test_every_driver_is_in_this_suite() -> None:
    assert set(DRIVERS) == {"noop", "linux_bridge"}


def test_a_port_that_is_shut_reaches_nothing(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    moved(switch, A, fence)
    found = moved(switch, None, fence + 1)
    assert (found.is_shut, found.segments, lab.reached()) == (True, frozenset(), set())
    moved(switch, P, fence + 2)
    assert lab.reached() == {"deploy", "bmc"}


def test_a_move_that_is_repeated_changes_nothing(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    first = moved(switch, A, fence)
    assert (set(first.segments), first.untagged, first.fence) == ({TENANT_A}, TENANT_A, fence)
    assert moved(switch, A, fence) == first == read(switch)


def test_a_newer_task_leaves_its_fence_at_a_port_that_is_as_ordered_and_its_link_up(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    moved(switch, A, fence)
    link = f"cat /sys/class/net/{MACHINE}/carrier_changes"
    before = sh(link, lab.name)
    found = moved(switch, A, fence + 1)
    assert (found.fence, sh(link, lab.name)) == (fence + 1, before)
    moved(switch, B, fence + 2)
    assert sh(link, lab.name) != before, "a move is seen at the link"
    assert lab.reached() == {"b1"}


def test_a_task_with_an_older_fence_moves_nothing(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    moved(switch, A, fence)
    for older in (B, None, A):
        with pytest.raises(FenceOlder):
            moved(switch, older, fence - 1)
    assert (set(read(switch).segments), lab.reached()) == ({TENANT_A}, {"a2"})


def test_a_port_that_was_moved_by_another_system_is_noticed(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    moved(switch, A, fence)
    assert asyncio.run(require_placed(switch, MACHINE, A, lambda: None)).segments == {TENANT_A}
    sh(f"ip link set {MACHINE} nomaster", lab.name)
    lab.put(MACHINE, TENANT_B)
    with pytest.raises(PortMoved, match=f"carries {TENANT_B}"):
        asyncio.run(require_placed(switch, MACHINE, A, lambda: None))
    moved(switch, A, fence)
    assert lab.reached() == {"a2"}, "the same task may be done again"


def test_an_unknown_port_is_not_guessed(lab: Lab, fence: int) -> None:
    switch = lab.switch()
    for port in ("lo", "nothing"):
        with pytest.raises(PortUnknown):
            moved(switch, A, fence, port)


@pytest.mark.parametrize("kind", [SegmentKind.PKEY, SegmentKind.DPU])
def test_kinds_that_are_not_built_are_refused_and_change_nothing(lab: Lab, fence: int, kind: SegmentKind) -> None:
    switch = lab.switch()
    before = moved(switch, P, fence)
    with pytest.raises(NotBuilt, match=kind.value):
        moved(switch, Segment(kind=kind, number=TENANT_A), fence + 1)
    assert read(switch) == before


def test_a_segment_without_a_bridge_is_refused_and_changes_nothing(lab: Lab, fence: int) -> None:
    if lab.mode != BRIDGES:
        pytest.skip("a bridge that filters VLANs has every segment")
    switch = lab.switch()
    before = moved(switch, P, fence)
    with pytest.raises(SegmentUnknown, match="seg4000"):
        moved(switch, Segment(number=4000), fence + 1)
    assert read(switch) == before


def test_a_bridge_that_does_not_filter_is_no_switch(lab: Lab, fence: int) -> None:
    if lab.mode != FILTERING:
        pytest.skip("a bridge for each segment does not filter")
    sh("ip link set br0 type bridge vlan_filtering 0", lab.name)
    try:
        with pytest.raises(SwitchProblem) as problem:
            moved(lab.switch(), A, fence)
        assert problem.value.code == "switch_not_isolating"
    finally:
        sh("ip link set br0 type bridge vlan_filtering 1", lab.name)
