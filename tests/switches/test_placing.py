"""A port is moved once, read back, and never by a task with an older fence, whatever the switch answers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.switches.contract import (
    FenceOlder,
    PortMoved,
    PortNotMoved,
    PortState,
    SwitchProblem,
    SwitchRefused,
    SwitchUnanswered,
)
from node_agent.switches.noop import NoopSwitch
from node_agent.switches.placing import PlacingTimes, place, require_placed
from node_agent.wire.switches import Segment
from tests.switches.scripted import Fault, ScriptedSwitch

AT_ONCE = PlacingTimes(settle_seconds=0.0, poll_seconds=0.0)
A, B = Segment(number=1001), Segment(number=1002)
SEGMENTS = st.sampled_from([A, B, None])


class LeaseOver(Exception):
    """The agent may no longer act."""


def moved(switch: ScriptedSwitch, segment: Segment | None, fence: int) -> PortState:
    return asyncio.run(place(switch, "p", segment, fence, lambda: None, AT_ONCE))


@given(orders=st.lists(st.tuples(SEGMENTS, st.integers(1, 5), st.sampled_from(Fault)), max_size=8))
def test_what_is_reported_is_what_the_port_carries(orders: list[tuple[Segment | None, int, Fault]]) -> None:
    switch, newest = ScriptedSwitch(), 0
    for segment, fence, fault in orders:
        switch.faults = [fault]
        before, written = switch.ports.get("p"), len(switch.writes)
        try:
            found = moved(switch, segment, fence)
        except FenceOlder:
            assert fence < newest
            assert (switch.ports.get("p"), len(switch.writes)) == (before, written), "nothing was written"
        except SwitchProblem:
            now = switch._of("p")
            assert not (now.carries(segment) and now.fence == fence), "a move with its effect is no failure"
        else:
            assert found.carries(segment)
            assert switch._of("p").carries(segment)
            assert fence >= newest
        kept = switch._of("p").fence or 0
        assert kept >= newest, "the fence of a port never goes back"
        newest = kept


def test_a_move_without_an_answer_that_had_its_effect_is_done() -> None:
    switch = ScriptedSwitch([Fault.LOST])
    assert moved(switch, A, 1).segments == {A.number}
    assert len(switch.writes) == 1


@pytest.mark.parametrize(
    ("fault", "problem"),
    [(Fault.SILENT, SwitchUnanswered), (Fault.LIE, PortNotMoved), (Fault.REFUSE, SwitchRefused)],
)
def test_a_move_without_effect_is_none(fault: Fault, problem: type[SwitchProblem]) -> None:
    switch = ScriptedSwitch([fault])
    with pytest.raises(problem):
        moved(switch, A, 1)
    assert switch.vlan("p") == 1
    assert moved(switch, A, 1).segments == {A.number}, "the next attempt does it"


def test_a_port_as_ordered_is_not_written() -> None:
    switch = ScriptedSwitch()
    moved(switch, A, 3)
    moved(switch, A, 3)
    assert len(switch.writes) == 1
    moved(switch, A, 4)
    assert switch.writes[-1] == ("p", A.number, 4), "a newer task leaves its fence"


def test_a_switch_that_stays_silent_leaves_the_outcome_unknown() -> None:
    switch = ScriptedSwitch(unread=1)
    with pytest.raises(SwitchUnanswered):
        moved(switch, A, 1)
    assert switch.writes == [], "what cannot be read is not written"

    class Deaf(ScriptedSwitch):
        async def write(self, port: str, segment: Segment | None, fence: int) -> None:
            await super().write(port, segment, fence)
            self.unread = 9

    with pytest.raises(SwitchUnanswered):
        asyncio.run(place(Deaf(), "p", A, 1, lambda: None, AT_ONCE))


def test_a_port_that_settles_late_is_waited_for() -> None:
    class Slow(ScriptedSwitch):
        async def read(self, port: str) -> PortState:
            found = await super().read(port)
            return PortState(frozenset({1}), 1, False) if self.reads < 5 else found

    switch = Slow()
    found = asyncio.run(place(switch, "p", A, 1, lambda: None, PlacingTimes(5.0, 0.0)))
    assert (found.untagged, len(switch.writes)) == (A.number, 1)


@pytest.mark.parametrize("allowed", [0, 1])
def test_nothing_is_sent_after_the_lease(allowed: int) -> None:
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked > allowed:
            raise LeaseOver

    for switch in (ScriptedSwitch(), NoopSwitch()):
        asked = 0
        if isinstance(switch, NoopSwitch) and allowed:
            continue  # it sends nothing
        with pytest.raises(LeaseOver):
            asyncio.run(place(switch, "p", A, 1, guard, AT_ONCE))
        if isinstance(switch, ScriptedSwitch):
            assert (switch.writes, switch.reads) == ([], allowed)


@pytest.mark.parametrize(
    ("state", "segment", "carries"),
    [
        (PortState(frozenset({1001}), 1001, False), A, True),
        (PortState(frozenset({1001}), 1001, True), A, False),
        (PortState(frozenset({1001}), None, False), A, False),
        (PortState(frozenset({1001, 100}), 1001, False), A, False),
        (PortState(frozenset({1002}), 1002, False), A, False),
        (PortState(frozenset(), None, False), A, False),
        (PortState(frozenset(), None, True), None, True),
        (PortState(frozenset(), None, False), None, False),
        (PortState(frozenset({1001}), 1001, True), None, False),
    ],
)
def test_a_port_carries_one_segment_untagged_and_no_other(
    state: PortState, segment: Segment | None, carries: bool
) -> None:
    assert state.carries(segment) is carries
    switch = ScriptedSwitch(ports={"p": state})
    if carries:
        assert asyncio.run(require_placed(switch, "p", segment, lambda: None)) == state
    else:
        with pytest.raises(PortMoved):
            asyncio.run(require_placed(switch, "p", segment, lambda: None))
    assert switch.writes == []
