"""Agents that stand still while everything goes on without them, and come back: nothing that they lost is changed (P7)."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from berth.client import Allocation, CreatedAllocation, InvalidState, Node, NotFound, Orphan
from berth.local.options import StackOptions
from berth.local.stack import Stack
from node_agent.journal_file import read_journal
from node_agent.journal_records import Reported
from node_agent.journal_state import JournalState
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, Tenant, Whole, logs_in

NODE = "eu-1-slice-1"
WORKER = {
    "BERTH_PROVISION_SECONDS_MAX": "8", "BERTH_RELEASE_SECONDS_MAX": "2", "BERTH_RELEASE_ATTEMPTS_MAX": "2",
    "BERTH_RELEASE_RETRY_FIRST_SECONDS": "0.2", "BERTH_SWEEP_SECONDS": "0.5", "BERTH_RECONCILE_SECONDS": "0.5",
}  # fmt: skip
SLOW_BOOT = {"slow_phase_seconds": "3", "slow_phase": "boot"}


@pytest.fixture(scope="module")
def whole(server_directory: Path) -> Iterator[Whole]:
    """A stack of this module's own with short deadlines and one slice node."""
    environment = {"node-api": NODE_API, "worker": WORKER, f"agent {NODE}": {"BERTH_AGENT_HEARTBEAT_SECONDS": "0.5"}}
    options = StackOptions(server_directory / "paused" / "var", agents=1, wished_port=None, environment=environment)
    with Stack(options) as stack:
        yield Whole(stack)


def send(whole: Whole, number: signal.Signals) -> None:
    """A signal to the agent."""
    (agent,) = [child for child in whole.stack._children if child.name == f"agent {NODE}"]
    assert agent.process is not None
    agent.process.send_signal(number)


def journal(whole: Whole) -> list[Any]:
    """What the agent's journal says."""
    (found,) = whole.stack.options.state_directory.glob(f"**/{NODE}/**/journal")
    return list(read_journal(found))


def stopped_in_the_middle(whole: Whole, tenant: Tenant) -> CreatedAllocation:
    """An allocation whose provisioning is in progress on a stopped agent."""
    node = whole.admin.get_node(NODE)
    whole.set_faults(node.id, SLOW_BOOT)
    made = tenant.create()
    wait_for(lambda: "image" in tenant.phases(made), "the guest to be about to boot")
    send(whole, signal.SIGSTOP)
    whole.set_faults(node.id, {})
    return made


def late_results(tenant: Tenant, made: CreatedAllocation) -> list[int | None]:
    """The fences of the timeline's late results: none twice. A release that was on its way to the agent when
    it was stopped makes one as well."""
    entries = tenant.client.iterate_timeline(made.allocation_id)
    fences = [entry.fence for entry in entries if entry.code == "late_result"]
    assert len(fences) == len(set(fences))
    return fences


def told_once_and_never_again(whole: Whole, made: CreatedAllocation) -> bool:
    """Whether the journal calls every task of the allocation that the agent has had reported, each once."""
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        issued = {
            task_id
            for (task_id,) in connection.execute(
                "select id from node_tasks where allocation_id = %s", (made.allocation_id,)
            )
        }
    records = journal(whole)
    state = JournalState()
    for record in records:
        state.apply(record)
    known = issued & state.tasks.keys()
    reported = [record.task_id for record in records if isinstance(record, Reported) and record.task_id in known]
    return len(known) >= 2 and known == set(reported) and len(reported) == len(set(reported))


def free_slots(whole: Whole) -> int:
    """How many slots of the node can be had."""
    return whole.admin.get_node(NODE).free_slots


# tests/node_agent/test_paused.py pauses the agent in `make test`; the two tests below bring one back.
@pytest.mark.full
def test_force_released_and_given_up_on_it_changes_nothing_when_it_comes_back(whole: Whole, tenant: Tenant) -> None:
    free = free_slots(whole)
    made = stopped_in_the_middle(whole, tenant)
    whole.admin.force_release(made.allocation_id, reason="the node does not answer")
    ended = tenant.wait(made, "release_failed")
    assert ended.failure is not None
    send(whole, signal.SIGCONT)
    wait_for(lambda: bool(late_results(tenant, made)), "the late result to be recorded")
    after = tenant.client.get_allocation(made.allocation_id)
    assert (after.status, after.row_version, after.active_at) == ("release_failed", ended.row_version, None)
    assert free_slots(whole) == free - 1, "nothing has proven that it is clean"
    whole.admin.force_release(made.allocation_id, reason="the node answers again")
    tenant.wait(made, "released")
    wait_for(lambda: told_once_and_never_again(whole, made), "every report to have been taken")
    assert free_slots(whole) == free
    wait_for(lambda: whole.waiting_events() == 0, "every event to have its place")
    assert whole.violations() == []


# Long. tests/worker/test_both_workflows.py has a node that is silent.
@pytest.mark.full
def test_cancelled_and_expired_it_is_undone_when_it_comes_back(whole: Whole, tenant: Tenant) -> None:
    """The release waits for the node; the provision that it overtook is interrupted."""
    free = free_slots(whole)
    made = stopped_in_the_middle(whole, tenant)
    tenant.client.release_allocation(made.allocation_id)
    wait_for(lambda: "release_attempt" in _codes(tenant, made), "the release's task to be issued")
    send(whole, signal.SIGCONT)
    ended = tenant.wait(made, "released", "release_failed")
    if ended.status == "release_failed":
        tenant.client.release_allocation(made.allocation_id)
        tenant.wait(made, "released")
    wait_for(lambda: bool(late_results(tenant, made)), "the overtaken provision's result to be recorded")
    assert "active" not in tenant.phases(made)
    assert free_slots(whole) == free
    wait_for(lambda: told_once_and_never_again(whole, made), "every report to have been taken")
    assert whole.violations() == []


def _codes(tenant: Tenant, made: CreatedAllocation) -> list[str | None]:
    return [entry.code for entry in tenant.client.iterate_timeline(made.allocation_id)]


# Long. tests/allocations has orphans that a node reports.
@pytest.mark.full
def test_what_an_admin_wrongly_called_absent_is_found_and_destroyed(whole: Whole, tenant: Tenant) -> None:
    """From the operator's mistake to the orphan, out of placement's way, to its proven end."""
    free = free_slots(whole)
    made = stopped_in_the_middle(whole, tenant)
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "release_failed")
    whole.admin.force_cleanup(made.allocation_id, reason="the node is a brick", runtime_verified_absent=True)
    tenant.wait(made, "released")
    assert free_slots(whole) == free
    send(whole, signal.SIGCONT)

    wait_for(lambda: _orphans(whole) != [], "the orphan to be found")
    (orphan,) = _orphans(whole)
    node = whole.admin.get_node(NODE)
    assert (orphan.allocation_id, orphan.state) == (made.allocation_id, "reported")
    assert free_slots(whole) == free - len(orphan.slots)
    for slot in node.slots or []:
        assert (slot.state == "out_of_service") == (slot.index in orphan.slots)
    assert whole.violations() == []
    other = tenant.create()
    active = tenant.wait(other, "active")
    assert not set(active.slots) & set(orphan.slots)
    assert logs_in(active, tenant.private_key, "echo here") == "here\n"

    with pytest.raises(NotFound):
        whole.admin.destroy_orphan(node.id, uuid.uuid4(), reason="none")
    adopted = whole.admin.adopt_orphan(node.id, orphan.id, reason="wait a little", allocation_id=other.allocation_id)
    assert (adopted.state, adopted.adopted_for) == ("adopted", other.allocation_id)
    whole.admin.destroy_orphan(node.id, orphan.id, reason="it has no owner")
    wait_for(lambda: _orphans(whole) == [], "the node to have proven its end")
    (ended,) = whole.admin.iterate_orphans(node.id, every=True)
    assert (ended.state, ended.destroyed_at is not None) == ("destroyed", True)
    with pytest.raises(InvalidState):
        whole.admin.destroy_orphan(node.id, orphan.id, reason="again")
    assert logs_in(active, tenant.private_key, "echo still here") == "still here\n"
    tenant.client.release_allocation(other.allocation_id)
    tenant.wait(other, "released")
    assert free_slots(whole) == free
    assert late_results(tenant, made)
    wait_for(lambda: whole.waiting_events() == 0, "every event to have its place")
    assert whole.violations() == []
    assert _events(whole) == ["node.orphan_found", "node.orphan_adopted", "node.orphan_destroyed"]
    entries = list(whole.admin.iterate_audit(subject=f"nodes/{node.id}"))
    actions = [entry.action for entry in entries if entry.code == "ok"]
    assert [a for a in actions if "orphan" in a] == [
        "node.orphan_found", "node.orphan_adopted", "node.orphan_destroy",
    ]  # fmt: skip


def _orphans(whole: Whole) -> list[Orphan]:
    node: Node = whole.admin.get_node(NODE)
    return list(whole.admin.iterate_orphans(node.id))


def _events(whole: Whole) -> list[str]:
    with psycopg.connect(whole.stack.endpoints.database_url, row_factory=dict_row) as connection:
        found = connection.execute("select event_type from log where event_type like 'node.orphan%%' order by version")
        return [row["event_type"] for row in found.fetchall()]


@pytest.mark.full
def test_what_vanished_from_its_node_is_reported(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create()
    active: Allocation = tenant.wait(made, "active")
    assert active.node == NODE
    (guest,) = whole.stack.options.state_directory.glob(f"**/allocations/{made.allocation_id}")
    aside = guest.parent.parent / "aside"
    (lease,) = guest.parent.parent.glob(f"leases/slot-{active.slots[0]}.json")
    content = lease.read_bytes()
    guest.rename(aside)
    lease.unlink()
    wait_for(lambda: "missing_on_node" in _codes(tenant, made), "its absence to be recorded")
    assert tenant.client.get_allocation(made.allocation_id).status == "active"
    lease.write_bytes(content)
    aside.rename(guest)
    wait_for(lambda: "back_on_node" in _codes(tenant, made), "its return to be recorded")
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    assert whole.violations() == []
