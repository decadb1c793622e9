"""Crash plays of outages: an allocation is lost and released; an offline node's is degraded."""

from __future__ import annotations

from collections.abc import Iterator

from tests.crashes.plays import create, release
from tests.crashes.stage import FIRST_AGENT, Stage
from tests.support.waiting import wait_for


def _health_events(stage: Stage, subject: str) -> list[str]:
    found = stage.execute(
        "select event_type from log where subject = %s and event_type in ('allocation.degraded', 'allocation.lost',"
        " 'allocation.recovered') order by version",
        subject,
    )
    return [str(row[0]) for row in found]


def a_lost_allocation(stage: Stage) -> Iterator[None]:
    """Its node is offline, its deadlines pass: it is degraded, lost and released once each, and cleaned up by its agent."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    stage.kill(FIRST_AGENT)
    yield
    node = stage.node(FIRST_AGENT).name
    stage.execute("update nodes set last_seen_at = last_seen_at - interval '1 day' where name = %s", node)
    wait_for(lambda: not stage.admin.get_node(node).online, "the node is offline")
    _pass_deadline(stage, made.allocation_id, "degraded")
    wait_for(lambda: _is(stage, made.allocation_id, "lost"), "it is lost")
    _pass_deadline(stage, made.allocation_id, "lost")
    active = "select 1 from allocations where id = %s and state = 'active'"
    wait_for(lambda: stage.execute(active, made.allocation_id) == [], "it is released")
    stage.start(FIRST_AGENT)
    tenant.wait(made, "released")
    assert _health_events(stage, f"allocations/{made.allocation_id}") == ["allocation.degraded", "allocation.lost"]


def _is(stage: Stage, allocation_id: object, health: str) -> bool:
    return bool(stage.execute("select 1 from allocations where id = %s and health = %s", allocation_id, health))


def _pass_deadline(stage: Stage, allocation_id: object, health: str) -> None:
    wait_for(lambda: _is(stage, allocation_id, health), f"it is {health}")
    passed = "update allocations set health_until = clock_timestamp() where id = %s and health = %s"
    stage.execute(passed, allocation_id, health)


def an_offline_node_with_an_allocation(stage: Stage) -> Iterator[None]:
    """A node is offline by another door than silence: its allocation is degraded once, and recovers."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    stage.kill(FIRST_AGENT)
    yield
    node = stage.node(FIRST_AGENT).name
    stage.execute("update nodes set online = false where name = %s", node)
    wait_for(lambda: _is(stage, made.allocation_id, "degraded"), "it is degraded")
    stage.start(FIRST_AGENT)
    subject = f"allocations/{made.allocation_id}"
    expected = ["allocation.degraded", "allocation.recovered"]
    wait_for(lambda: _health_events(stage, subject) == expected, "it has recovered")
    release(tenant, made)
    tenant.wait(made, "released")
