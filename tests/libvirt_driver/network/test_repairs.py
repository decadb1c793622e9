"""Networks that something else changed, that are left of no guest, or whose making was interrupted anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.stage import A1, A2, B1, staged

DAMAGES = (
    "flushed rules", "one rule gone", "one element gone", "a tap gone", "a bridge gone", "a tap out of its bridge",
    "a tap in another bridge", "another address", "a stray tap", "a stray bridge",
)  # fmt: skip


@pytest.fixture(scope="module")
def changes() -> Any:
    """What one run found."""
    return staged("tests.libvirt_driver.network.repairs", "changes")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_found_and_repaired(changes: Any, damage: str) -> None:
    was_damaged, restored, is_whole = changes[damage]
    assert (was_damaged, restored, is_whole) == (True, True, True)


def test_what_is_whole_is_left_alone(changes: Any) -> None:
    assert changes["again"] == [False, True]
    assert changes["brought in twice"] is True
    assert changes["left alone"] == [False, True, True], "interfaces and tables of others"


def test_two_agents_do_not_share_a_host(changes: Any) -> None:
    assert "another agent" in changes["second agent"]


def test_a_tap_of_another_allocation_is_neither_taken_nor_removed(changes: Any) -> None:
    problem, removed, still_there = changes["another's tap"]
    assert f"belongs to allocation {A2.allocation_id}" in problem
    assert (removed, still_there) == (["rules"], True)


def test_the_bridge_goes_with_its_last_guest_and_a_repetition_finds_nothing(changes: Any) -> None:
    assert changes["out 1"] == [[A1.tap, "rules"], False]
    assert changes["out 2"] == [[A2.tap, "rules", A2.bridge], False]
    assert changes["out 3"] == [[B1.tap, "rules", B1.bridge], False]
    assert [changes[f"again {number}"] for number in (1, 2, 3)] == [[], [], []]
    assert changes["unknown"] == []
    assert changes["left"] == []


def test_a_rule_that_is_left_of_a_guest_does_not_keep_the_next_one_out(changes: Any) -> None:
    assert changes["reused port"] is True


@pytest.mark.hardware
@pytest.mark.parametrize("step", ["in", "out"])
def test_an_agent_killed_between_any_two_steps_is_continued(step: str) -> None:
    outcomes = staged("tests.libvirt_driver.network.repairs", "kills", step)
    assert len(outcomes) > 8
    assert all(outcomes), outcomes
