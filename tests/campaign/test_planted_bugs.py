"""The campaign can fail: each planted bug is seen by the checker that docs/campaign.md names, and only with the bug."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.campaign.directed import database
from tests.campaign.directed.scene import Scene
from tests.testbuild.planted_bugs import planted

SCENES: list[tuple[str, Callable[[Scene], None], tuple[str, ...]]] = [
    ("no_claim_constraints", database.two_creates_at_once, ("one holder", "clean before reuse", "verify P1")),
    ("no_right_constraint", database.a_second_right_in_the_future, ("verify P1",)),
    ("no_occupant_constraint", database.a_second_occupant, ("verify P1",)),
    ("no_node_lock", database.a_create_while_units_come_back, ("verify fit",)),
    ("cleanup_not_awaited", database.a_create_before_cleanup, ("clean before reuse", "verify P6")),
    ("results_not_fenced", database.a_result_after_the_release, ("verify P7",)),
    ("key_apart_from_effect", database.one_key_twice_at_once, ("one effect",)),
    ("fingerprint_of_path", database.one_key_two_contents, ("same key",)),
    ("application_clock", database.a_look_before_the_deadline, ("late, never early",)),
    ("deadline_before_lock", database.a_deadline_behind_a_lock, ("late, never early",)),
    ("signal_is_fact", database.a_task_that_failed, ("made by a node",)),
    ("versions_by_transaction_id", database.a_release_that_began_first_and_won_last, ("legal path", "rising fences")),
    ("versions_from_outbox_ids", database.a_create_that_was_rolled_back, ("gapless",)),
]


@pytest.mark.parametrize(("bug", "play", "checks"), SCENES, ids=[bug for bug, _, _ in SCENES])
def test_a_bug_of_the_control_plane_is_caught(
    database_url: str, bug: str, play: Callable[[Scene], None], checks: tuple[str, ...]
) -> None:
    scene = Scene(database_url)
    with planted(bug, database_url):
        play(scene)
        found = {violation.check for violation in scene.judge()}
    assert set(checks) <= found, found


@pytest.mark.parametrize(("bug", "play", "checks"), SCENES, ids=[bug for bug, _, _ in SCENES])
def test_without_the_bug_nothing_is_found(
    database_url: str, bug: str, play: Callable[[Scene], None], checks: tuple[str, ...]
) -> None:
    scene = Scene(database_url)
    play(scene)
    found = [str(violation) for violation in scene.judge()]
    assert found == []
