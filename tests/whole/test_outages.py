"""A guest that ends by itself, through every component: noticed, announced to its tenant, started again by policy, credited."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from berth.client import Allocation, Invalid
from node_agent.drivers.sandbox.records import AllocationDirectory
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole, logs_in

OUTAGE_TYPES = ["allocation.degraded", "allocation.recovered", "allocation.lost"]


def _create(tenant: Tenant, restart_policy: str | None) -> Allocation:
    made = tenant.client.create_allocation(
        sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[tenant.ssh_key_id], restart_policy=restart_policy
    )
    return tenant.wait(made, "active")


def _kill_guest(whole: Whole, allocation: Allocation) -> None:
    (directory,) = whole.stack.options.state_directory.glob(f"**/allocations/{allocation.allocation_id}")
    state = AllocationDirectory(directory).guest_state()
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)


def _outage_events(tenant: Tenant, allocation_id: UUID) -> list[str]:
    head = tenant.client.get_log_version().version
    subjects = [f"allocations/{allocation_id}"]
    return [event.event_type for event in tenant.client.events(0, types=OUTAGE_TYPES, subjects=subjects, until=head)]


def _credits(whole: Whole, allocation_id: UUID) -> list[dict[str, Any]]:
    with psycopg.connect(whole.stack.endpoints.database_url, row_factory=dict_row) as connection:
        rows = connection.execute("select * from ledger where kind = 'credit' and allocation_id = %s", (allocation_id,))
        return rows.fetchall()


@pytest.mark.full
def test_a_guest_that_dies_is_announced_started_again_and_credited(whole: Whole, tenant: Tenant) -> None:
    active = _create(tenant, None)
    assert active.restart_policy == "always"
    logs_in(active, tenant.private_key, "echo kept > file")
    _kill_guest(whole, active)
    outage = ["allocation.degraded", "allocation.recovered"]
    wait_for(lambda: _outage_events(tenant, active.allocation_id) == outage, "the outage's events")
    assert logs_in(active, tenant.private_key, "cat file").strip() == "kept"
    shown = tenant.client.get_allocation(active.allocation_id)
    assert shown.status == "active"
    assert shown.health is not None
    assert (shown.health.state, shown.health.cause) == ("healthy", None)
    wait_for(lambda: len(_credits(whole, active.allocation_id)) == 1, "the outage's credit")
    (line,) = _credits(whole, active.allocation_id)
    assert line["tenant_id"] == tenant.id
    assert line["amount_micro_units"] > 0
    tenant.client.release_allocation(active.allocation_id)
    tenant.wait(active, "released")
    assert whole.violations() == []


# Long. tests/node_agent/test_guest_restarts.py has the policy without a control plane.
@pytest.mark.full
def test_a_guest_with_policy_never_stays_down_until_its_tenant_starts_it(whole: Whole, tenant: Tenant) -> None:
    active = _create(tenant, "never")
    _kill_guest(whole, active)
    wait_for(lambda: _outage_events(tenant, active.allocation_id) == ["allocation.lost"], "the outage's event")
    lost = tenant.client.get_allocation(active.allocation_id)
    assert lost.health is not None
    assert (lost.status, lost.health.state, lost.health.cause) == ("active", "lost", "guest_down")
    assert lost.restart_policy == "never"
    tenant.client.start_allocation(active.allocation_id)
    wait_for(
        lambda: _outage_events(tenant, active.allocation_id) == ["allocation.lost", "allocation.recovered"],
        "its recovery",
    )
    assert logs_in(tenant.wait(active, "active"), tenant.private_key, "echo up").strip() == "up"
    tenant.client.release_allocation(active.allocation_id)
    tenant.wait(active, "released")
    assert whole.violations() == []


@pytest.mark.full
@pytest.mark.parametrize("policy", ["", "sometimes", "ALWAYS"])
def test_an_unknown_restart_policy_is_refused(tenant: Tenant, policy: str) -> None:
    with pytest.raises(Invalid) as refused:
        _create(tenant, policy)
    assert "restart_policy" in str(refused.value)
    assert list(tenant.client.iterate_allocations()) == []
