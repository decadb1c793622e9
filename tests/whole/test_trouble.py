"""Processes and servers die in the middle; the lifecycle continues (P14)."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole


@pytest.mark.quick("api", "worker", "agent eu-1-slice-1")
@pytest.mark.parametrize("name", ["api", "node-api", "issuer", "relay", "worker", "webhooks", "agent eu-1-slice-1"])
def test_a_killed_process_continues_where_it_stopped(whole: Whole, tenant: Tenant, name: str) -> None:
    running = tenant.create()
    tenant.wait(running, "active")
    fresh = tenant.create()
    whole.kill(name)
    if name != "api":
        tenant.client.release_allocation(running.allocation_id)
    whole.start(name)
    if name == "api":
        tenant.client.release_allocation(running.allocation_id)
    tenant.wait(running, "released")
    # A provision that its agent's death interrupted is undone and fails; no other death may cost an allocation.
    ended = tenant.wait(fresh, "active", "failed")
    if ended.status == "failed":
        assert name.startswith("agent")
        assert ended.failure is not None
        assert ended.failure.code == "interrupted"
    else:
        tenant.client.release_allocation(fresh.allocation_id)
        tenant.wait(fresh, "released")


@pytest.mark.quick("postgres", "nats")
@pytest.mark.parametrize("name", ["postgres", "nats", "temporal"])
def test_a_server_that_is_killed_and_comes_back_loses_nothing(whole: Whole, tenant: Tenant, name: str) -> None:
    running = tenant.create()
    tenant.wait(running, "active")
    fresh = tenant.create()
    whole.server(name).kill()
    whole.server(name).start()
    tenant.client.release_allocation(running.allocation_id)
    tenant.wait(running, "released")
    tenant.wait(fresh, "active")
    tenant.client.release_allocation(fresh.allocation_id)
    assert tenant.wait(fresh, "released").failure is None


def test_a_control_plane_killed_whole_goes_on_in_the_middle(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create(labels={"berth.fault/slow_phase": "boot", "berth.fault/slow_phase_seconds": "2"})
    wait_for(lambda: "image" in tenant.phases(made), "the node is in the middle of it")
    control_plane = ("api", "node-api", "issuer", "relay", "worker", "webhooks")
    for name in control_plane:
        whole.kill(name)
    whole.start(*control_plane)
    active = tenant.wait(made, "active", "failed")
    assert (active.status, active.failure) == ("active", None)
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")


def test_nothing_was_broken_by_all_that(whole: Whole) -> None:
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    assert whole.violations() == []
