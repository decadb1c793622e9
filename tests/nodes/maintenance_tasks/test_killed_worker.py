"""A worker that is killed at any commit of a sweep leaves a task that is signed once and concluded once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import seed
from tests.nodes.answers import body_of
from tests.nodes.maintenance_tasks.running import (
    BROKEN,
    answer,
    commit,
    ended_events,
    knows_tasks,
    occupied,
    quarantines,
    sound,
    state_of,
    time_is_over,
)
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.testbuild.killing import REACHED
from worker.sweepers.maintenance import sweep_maintenance, sweep_maintenance_tasks

ROOT = Path(__file__).parents[3]
SIGNED = "select count(*) from node_tasks where type = 'maintenance.plugin'"


def killed(url: str, point: str) -> None:
    """Sweep in a process that dies there."""
    command = [sys.executable, "-m", "tests.nodes.maintenance_tasks.killed_worker", url, point]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, cwd=ROOT, env={**os.environ}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert REACHED.format(point) in done.stderr


# Long. tests/nodes/maintenance_tasks/test_races.py has every order without a kill.
@pytest.mark.full
@pytest.mark.quick("after_commit")
@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
def test_a_worker_killed_at_its_commits_signs_and_concludes_once(database_url: str, moment: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    def sweep() -> None:
        async def once(context: Context) -> None:
            await sweep_maintenance(context, 86_400.0, 10)
            await sweep_maintenance_tasks(context, {}, 10)

        run_with(database_url, once)

    async def committed(context: Context) -> UUID:
        return UUID(body_of(await commit(context, node))["window_id"])

    window_id = run_with(database_url, committed)
    # The first commit starts the window, the second retires none, the third signs the task.
    killed(database_url, f"other_command.{moment}:3")
    signed = moment == "after_commit"
    assert rows_of(database_url, SIGNED) == [(int(signed),)]
    assert occupied(database_url) == [signed]
    sweep()
    assert rows_of(database_url, SIGNED) == [(1,)]
    assert state_of(database_url, window_id) == ("active", "running", None)
    run_with(database_url, lambda context: answer(context, database_url, BROKEN))
    # No window is due: the first commit retires none, the second concludes the task.
    killed(database_url, f"other_command.{moment}:2")
    assert len(quarantines(database_url)) == (8 if signed else 0)
    sweep()
    assert state_of(database_url, window_id) == ("active", "failed", "plugin_failed")
    time_is_over(database_url, window_id)
    killed(database_url, f"other_command.{moment}:1")
    sweep()
    assert state_of(database_url, window_id) == ("ended", "failed", "plugin_failed")
    assert [state for state, _ in ended_events(database_url)] == ["failed"]
    assert len(quarantines(database_url)) == 8
    sound(database_url)
