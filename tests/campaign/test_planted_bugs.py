"""Each planted bug is found by the checker that docs/explanation/campaign.md names, and only with the bug."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.local.servers import LocalNats, LocalTemporal, free_port
from tests.campaign.directed import database, faults, processes, reservations
from tests.campaign.directed.accounts.scenes import ACCOUNT_SCENES
from tests.campaign.directed.fleet import catalogue, nodes
from tests.campaign.directed.live_scenes import LIVE_SCENES
from tests.campaign.directed.machines.scenes import MACHINE_SCENES
from tests.campaign.directed.scene import Scene
from tests.node_agent.agents import Tenant
from tests.testbuild.planted_bugs import BUGS, planted

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "campaign.md"

SCENES: list[tuple[str, Callable[[Scene], None], tuple[str, ...]]] = [
    ("no_claim_constraints", database.two_creates_at_once, ("one holder", "clean before reuse", "verify P1")),
    ("no_right_constraint", database.a_second_right_in_the_future, ("verify P1",)),
    ("no_occupant_constraint", database.a_second_occupant, ("verify P1",)),
    (
        "no_right_constraint",
        reservations.a_window_that_begins_before_the_last_one_is_over,
        ("one holder", "verify P1"),
    ),
    (
        "no_occupant_constraint",
        reservations.a_turn_over_while_the_last_one_overruns,
        ("clean before reuse", "verify P1"),
    ),
    ("no_node_lock", database.a_create_while_units_come_back, ("verify fit",)),
    ("cleanup_not_awaited", database.a_create_before_cleanup, ("clean before reuse", "verify P6")),
    ("results_not_fenced", database.a_result_after_the_release, ("verify P7",)),
    ("key_apart_from_effect", database.one_key_twice_at_once, ("one effect",)),
    ("fingerprint_of_path", database.one_key_two_contents, ("same key",)),
    ("application_clock", database.a_look_before_the_deadline, ("late, never early",)),
    ("application_clock", reservations.a_sweep_before_the_deadline, ("late, never early", "verify P5")),
    ("deadline_before_lock", reservations.a_confirm_behind_a_lock, ("late, never early",)),
    ("tombstones_forgotten", reservations.a_write_that_comes_after_the_question, ("asked", "fenced, no effect")),
    ("windows_always_begun", reservations.a_start_before_its_time, ("late, never early",)),
    ("signal_is_fact", database.a_task_that_failed, ("made by a node",)),
    ("versions_by_transaction_id", database.a_release_that_began_first_and_won_last, ("legal path", "rising fences")),
    ("versions_from_outbox_ids", database.a_create_that_was_rolled_back, ("gapless",)),
    *ACCOUNT_SCENES,
    ("cordon_ignored", nodes.a_create_on_a_cordoned_node, ("placed in service",)),
    ("quarantine_ignored", nodes.a_create_on_a_slot_in_quarantine, ("placed in service",)),
    ("drain_forgets_unit", nodes.a_drain_with_something_left, ("emptied",)),
    ("node_retired_in_use", nodes.a_retirement_with_something_left, ("emptied", "retired, no task", "revoked")),
    ("uncordon_by_word", nodes.an_uncordon, ("node state",)),
    ("window_without_claim", nodes.a_create_in_a_maintenance_window, ("maintenance alone", "verify maintenance")),
    ("revocation_unchecked", nodes.a_certificate_after_its_revocation, ("revoked",)),
    ("retired_sku_sold", catalogue.a_create_after_the_retirement, ("retired, not sold",)),
    ("price_of_activation", catalogue.a_price_that_changes_during_a_provision, ("price kept",)),
    ("catalogue_apart_from_key", catalogue.a_change_that_comes_again, ("catalogue",)),
    ("own_clock", faults.a_sweep_under_a_stepped_clock, ("late, never early", "verify P5")),
    ("ended_sessions_kept", faults.a_hold_after_its_session_was_ended, ("outcome known",)),
    ("acknowledged_without_room", faults.a_release_for_which_there_is_no_room, ("released",)),
    ("failed_statements_prepared", faults.a_read_after_its_table_was_locked, ("foreseen",)),
    ("log_behind_open_transactions", faults.a_log_beside_an_open_transaction, ("log moves",)),
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


# Long; the quicker test: test_a_bug_of_the_control_plane_is_caught.
@pytest.mark.full
@pytest.mark.parametrize(("bug", "play", "checks"), SCENES, ids=[bug for bug, _, _ in SCENES])
def test_without_the_bug_nothing_is_found(
    database_url: str, bug: str, play: Callable[[Scene], None], checks: tuple[str, ...]
) -> None:
    scene = Scene(database_url)
    play(scene)
    found = [str(violation) for violation in scene.judge()]
    assert found == []


AGENT_SCENES: list[tuple[str, Any, str]] = [
    ("agent_not_fenced", processes.an_older_task_for_the_same_slot, "fence on the node"),
    ("effect_before_journal", processes.a_look_while_a_guest_is_made, "journal first"),
    ("agent_by_own_clock", faults.a_task_under_a_stepped_clock, "late, never early"),
]


@pytest.mark.quick("planted-agent_not_fenced", "clean-agent_not_fenced")
@pytest.mark.parametrize(("bug", "play", "check"), AGENT_SCENES, ids=[bug for bug, _, _ in AGENT_SCENES])
@pytest.mark.parametrize("is_planted", [True, False], ids=["planted", "clean"])
def test_a_bug_of_the_agent_is_caught(tmp_path: Path, bug: str, play: Any, check: str, is_planted: bool) -> None:
    agent_bug = bug if is_planted else None
    found = asyncio.run(processes.play_agent(tmp_path, agent_bug, play, Tenant(tmp_path)))
    assert {violation.check for violation in found} == ({check} if is_planted else set()), found


def test_every_bug_has_a_scene_and_a_line_in_the_documentation() -> None:
    caught: dict[str, set[str]] = defaultdict(set)
    for bug, _, checks in [*SCENES, *LIVE_SCENES, *MACHINE_SCENES]:
        caught[bug] |= set(checks)
    caught |= {bug: {check} for bug, _, check in [*AGENT_SCENES, *WORKER_SCENES]}
    caught["ended_certificates_accepted"] = {"only valid certificates"}
    caught["publish_without_sequence"] = {"sequence is version"}
    assert set(caught) == set(BUGS)
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = {row[0].strip("| `"): set(re.findall(r"`([^`]+)`", row[2])) for row in rows if len(row) == 4}
    assert {bug: told.get(bug) for bug in caught} == caught


@pytest.mark.parametrize("bug", ["ended_certificates_accepted", None])
def test_a_bug_of_the_listener_for_nodes_is_caught(tmp_path: Path, bug: str | None) -> None:
    with planted(bug):
        found = faults.a_node_whose_certificate_has_ended(tmp_path)
    assert {violation.check for violation in found} == ({"only valid certificates"} if bug else set()), found


@pytest.fixture
def own_nats(data_directory: Path) -> Iterator[LocalNats]:
    """A NATS of this test's own, because the stream's name is fixed."""
    server = LocalNats(data_directory / "nats", free_port(), free_port())
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("bug", ["publish_without_sequence", None])
def test_a_bug_of_the_relay_is_caught(database_url: str, own_nats: LocalNats, tmp_path: Path, bug: str | None) -> None:
    found = processes.two_relays(database_url, own_nats, tmp_path, bug)
    assert {violation.check for violation in found} == ({"sequence is version"} if bug else set()), found


WORKER_SCENES: list[tuple[str, Any, str]] = [
    ("default_reuse_policy", processes.events_that_come_again, "one workflow"),
    ("acknowledge_before_effect", processes.a_worker_that_dies_with_an_event, "event led on"),
]


@pytest.mark.full
@pytest.mark.parametrize(("bug", "play", "check"), WORKER_SCENES, ids=[bug for bug, _, _ in WORKER_SCENES])
@pytest.mark.parametrize("is_planted", [True, False], ids=["planted", "clean"])
def test_a_bug_of_the_worker_is_caught(
    database_url: str, own_nats: LocalNats, temporal_server: LocalTemporal, tmp_path: Path,
    bug: str, play: Any, check: str, is_planted: bool,
) -> None:  # fmt: skip
    started = processes.TestbuildProcesses(database_url, own_nats, temporal_server.address, tmp_path)
    started.bug = bug if is_planted else None
    try:
        found = play(started)
    finally:
        started.stop()
    assert {violation.check for violation in found} == ({check} if is_planted else set()), found
