"""Which slots are tested, and which report is a pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.wire.burn_in import BurnInReport
from node_agent.wire.health import PluginResult
from orchestrator.nodes.burn_ins.rules import BurnInOutcome, SlotUse, judge, plan, refusal
from orchestrator.problems import InvalidState, NotFound
from tests.nodes.burn_ins.running import burned_in, part

SLOTS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8).map(
    lambda uses: [SlotUse(index, *use) for index, use in enumerate(uses)]
)


def plugin(verdict: str, failure: str | None = None) -> PluginResult:
    return PluginResult.model_validate({"name": "fans", "verdict": verdict, "evidence": "fan 3", "failure": failure})


@given(SLOTS, st.none() | st.lists(st.integers(0, 9), max_size=4))
def test_only_slots_in_quarantine_without_an_allocation_are_tested(
    slots: list[SlotUse], wanted: list[int] | None
) -> None:
    planned = plan(slots, wanted)
    expected = [
        s.slot_index for s in slots if s.quarantined and not s.occupied and (wanted is None or s.slot_index in wanted)
    ]
    assert list(planned.slots if planned else ()) == expected
    if planned is not None:
        assert planned.shared == any(slot.occupied for slot in slots)


def test_refusals_name_what_is_in_the_way() -> None:
    slots = [SlotUse(0, quarantined=False, occupied=False), SlotUse(1, quarantined=True, occupied=True)]
    found = [refusal(slots, wanted) for wanted in (0, 1, 2, None)]
    assert [type(one) for one in found] == [InvalidState, InvalidState, NotFound, InvalidState]
    assert [one.extra.get("state") for one in found] == ["in_service", "occupied", None, "in_service"]


@pytest.mark.parametrize(
    ("report", "outcome", "failure"),
    [
        (burned_in(), BurnInOutcome.PASSED, None),
        (burned_in(part("dcgm"), plugins=[plugin("healthy")]), BurnInOutcome.PASSED, None),
        (burned_in(part("memory", "fault", "byte 7")), BurnInOutcome.FAULTY, "memory: byte 7"),
        (burned_in(part("dcgm", "fault")), BurnInOutcome.FAULTY, "dcgm: fault"),
        (burned_in(plugins=[plugin("fault")]), BurnInOutcome.FAULTY, "plugin fans: fan 3"),
        (burned_in(part("cpu", "unknown"), plugins=[plugin("fault")]), BurnInOutcome.FAULTY, "plugin fans: fan 3"),
        (burned_in(part("disk", "fault", "x"), part("cpu", "fault", "y")), BurnInOutcome.FAULTY, "disk: x (and 1 more)"),
        (burned_in(part("disk", "unknown", "no room")), BurnInOutcome.FAILED, "disk: no room"),
        (burned_in(part("dcgm", "unknown", "no host engine")), BurnInOutcome.FAILED, "dcgm: no host engine"),
        (burned_in(plugins=[plugin("unknown", "hung")]), BurnInOutcome.FAILED, "plugin fans: hung"),
        (BurnInReport(driver="noop", shared=False, parts=[]), BurnInOutcome.FAILED, "memory was not tested (and 2 more)"),
        (
            BurnInReport(driver="x", shared=False, parts=[part("memory"), part("disk")]),
            BurnInOutcome.FAILED,
            "cpu was not tested",
        ),
        (burned_in(part("memory", "fault", "e" * 1000)), BurnInOutcome.FAULTY, "memory: " + "e" * 292),
    ],
)  # fmt: skip
def test_only_what_was_tested_and_is_healthy_passes(
    report: BurnInReport, outcome: BurnInOutcome, failure: str | None
) -> None:
    assert judge(report) == (outcome, failure)
