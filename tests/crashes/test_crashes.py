"""A process is killed at a named place, started again, and what was in progress is completed (P14).

Each scenario proves that the process died at its label: by SIGKILL, after the line that the label writes. Then every
promise of `berth verify` must be kept, the fleet free, and nothing be left on a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from berth.local.stack import Stack
from tests.crashes.scenarios import SCENARIOS, Scenario
from tests.crashes.stage import Stage, options
from tests.support.waiting import WAIT_SECONDS_MAX

ACTED_SECONDS_MAX = 2 * WAIT_SECONDS_MAX


@pytest.fixture(scope="module")
def stage(server_directory: Path) -> Iterator[Stage]:
    """One stack of the test build for all crashes."""
    with Stack(options(server_directory / "crashes" / "var")) as stack:
        yield Stage(stack)


def _parameter(scenario: Scenario) -> object:
    return pytest.param(scenario, id=scenario.name, marks=() if scenario.seed else pytest.mark.full)


# A minute. In `make test` tests/whole/test_trouble.py kills each process and server.
@pytest.mark.full
@pytest.mark.quick(
    "api-create_allocations.after_commit-1-one_life",
    "worker-start_reservation.before_commit-1-begins_and_ends_by_itself",
    "node-api-accept_task_result.before_commit-1-one_life",
    "relay-publishing.after_send-1-one_life",
    "worker-begin_provisioning.after_commit-1-one_life",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", [_parameter(scenario) for scenario in SCENARIOS])
def test_nothing_is_lost_when_a_process_is_killed(stage: Stage, scenario: Scenario) -> None:
    stage.require_all_running()
    play = scenario.play(stage)
    next(play)
    crash_at = f"{scenario.point}:{scenario.number}"
    with ThreadPoolExecutor(1) as hands:
        with stage.armed(scenario.process, crash_at):
            acting = hands.submit(lambda: list(play))
            stage.await_death(scenario.process, crash_at)
        stage.start(scenario.process)
        acting.result(ACTED_SECONDS_MAX)
    assert stage.violations_at_rest() == []
