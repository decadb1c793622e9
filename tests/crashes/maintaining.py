"""A maintenance window with a task on two nodes while a process dies. As in `plays`: with keys, again until answered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from berth.local.fleet import plan_fleet
from tests.crashes.plays import create, new_key, release
from tests.crashes.stage import AGENTS, Stage
from tests.support.waiting import wait_for

END_COMES = """
update maintenance_windows set (ends_at, waits_until) = (select s, s from (select clock_timestamp() as s) n) where id = %s
"""
"""As if the time of the end had come; the claims of the window keep theirs, which no command changes."""
TASK_STATES = "select state from maintenance_tasks where window_id = %s order by state"
RECORDED = "select action from audit where subject = %s order by id"
EVENTS = "select event_type from log where subject = %s order by version"


def a_window_with_a_task(stage: Stage) -> Iterator[None]:
    """Committed twice under one key, it starts, runs its task once on each node, claims what a tenant releases, and ends."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    yield
    key, begins = new_key(), datetime.now(UTC)
    nodes = [f"node:{stage.admin.get_node(node.name).id}" for node in plan_fleet(AGENTS)]
    windows = [
        stage.admin.commit_maintenance(
            resources=nodes, starts_at=begins, ends_at=begins + timedelta(hours=1), reason="crash test",
            allocations="notify", task={"kind": "health_probe"}, idempotency_key=key,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert windows[0] == windows[1]
    assert len(windows[0].planned) == 2
    window_id, subject = windows[0].window_id, f"maintenance/{windows[0].window_id}"
    wait_for(lambda: states(stage, window_id) == ["completed", "waiting"], "the free node has run the task")
    release(tenant, made)
    assert stage.admin.get_maintenance(window_id).planned == []
    tenant.wait(made, "released")
    wait_for(lambda: states(stage, window_id) == ["completed"] * 2, "both nodes have run the task")
    stage.execute(END_COMES, window_id)
    wait_for(lambda: stage.admin.get_maintenance(window_id).state == "ended", "the window ends by itself")
    acts = ["commit", "start", "task_begin", "task_end", "task_begin", "task_end", "end"]
    assert stage.execute(RECORDED, subject) == [(f"maintenance.{act}",) for act in acts]
    events = [(f"maintenance.{step}",) for step in ("scheduled", "started", "task_ended", "task_ended", "ended")]
    wait_for(lambda: stage.execute(EVENTS, subject) == events, "its events are in the log")


def states(stage: Stage, window_id: UUID) -> list[str]:
    """The state of the window's task on each node, in order of the states."""
    return [str(state) for (state,) in stage.execute(TASK_STATES, window_id)]
