"""Crash plays of hardware: a faulty allocation is replaced, a node is discovered."""

from __future__ import annotations

from collections.abc import Iterator

from tests.crashes.plays import create, new_key
from tests.crashes.stage import FIRST_AGENT, Stage
from tests.support.waiting import wait_for


def _events(stage: Stage, subject: str, *kinds: str) -> list[str]:
    query = "select event_type from log where subject = %s and event_type = any(%s) order by version"
    return [str(row[0]) for row in stage.execute(query, subject, list(kinds))]


def a_faulty_allocation_is_replaced(stage: Stage) -> Iterator[None]:
    """Reported twice under one key, it is replaced once and released; its slot is returned twice under one key, once."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    yield
    key = new_key()
    reported, again = (
        tenant.client.report_fault(
            made.allocation_id, symptom="gpu_error", evidence="it fell off the bus", replace=True, idempotency_key=key
        )
        for _ in range(2)
    )
    assert reported == again
    assert reported.replacement_id is not None
    tenant.wait(made, "released")
    replacement = tenant.client.get_allocation(reported.replacement_id)
    assert replacement.status == "active"
    kinds = ("allocation.fault_reported", "allocation.replaced", "allocation.replacement_failed")
    subject = f"allocations/{made.allocation_id}"
    wait_for(lambda: len(_events(stage, subject, *kinds)) == 2, "its events are in the log")
    assert _events(stage, subject, *kinds) == [
        "allocation.fault_reported",
        "allocation.replaced",
    ]
    replacements = "select count(*) from fault_reports where allocation_id = %s and replacement_id is not null"
    assert stage.execute(replacements, made.allocation_id) == [(1,)]
    node = stage.admin.get_node(reported.node_id)
    for slot in reported.slots:
        returning = new_key()
        for _ in range(2):
            stage.admin.return_slot(node.id, slot, note="crash test", without_burn_in=True, idempotency_key=returning)
        returns = "select count(*) from audit where action = 'node.slot_return' and operation_key = %s"
        assert stage.execute(returns, returning) == [(1,)]
    tenant.client.release_allocation(replacement.allocation_id, idempotency_key=new_key())
    tenant.wait(replacement, "released")


def a_node_is_discovered(stage: Stage) -> Iterator[None]:
    """Its discovery is due: one task is issued, and its result taken once."""
    node = stage.admin.get_node(stage.node(FIRST_AGENT).name)
    known = "select 1 from node_topologies where node_id = %s and found is not null and waits_for is null"
    wait_for(lambda: stage.execute(known, node.id), "it was discovered")
    before = stage.admin.get_node_topology(node.id).found_at
    began = stage.execute("select clock_timestamp()")[0][0]
    yield
    stage.execute("update node_topologies set next_at = clock_timestamp() where node_id = %s", node.id)
    wait_for(lambda: stage.admin.get_node_topology(node.id).found_at != before, "it is discovered again")
    found = stage.admin.get_node_topology(node.id)
    assert (found.failure, found.waits) == (None, None)
    tasks = "select count(*) from node_tasks where node_id = %s and type = 'slice.topology_discover' and queued_at > %s"
    assert stage.execute(tasks, node.id, began) == [(1,)]
