"""Every row of docs/reference/failures.md, provoked through real agents, lands where the table says, with its code everywhere.

Each switch is thrown for one allocation (a label) and for a whole node; what a person does next is done, and works.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from berth.client import Allocation, InvalidState, Node, NodeInUse, SkuUnavailable
from berth.local.options import StackOptions
from berth.local.stack import Stack
from orchestrator.allocations.failures import FAILURES, Code
from tests.at_length import at_length
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, Tenant, Whole

WORKER = {
    "BERTH_PROVISION_SECONDS_MAX": "8", "BERTH_PROVISION_ATTEMPTS_MAX": "2",
    "BERTH_PROVISION_RETRY_FIRST_SECONDS": "0.2", "BERTH_RELEASE_SECONDS_MAX": "3", "BERTH_RELEASE_ATTEMPTS_MAX": "2",
    "BERTH_RELEASE_RETRY_FIRST_SECONDS": "0.2", "BERTH_NODE_SILENT_SECONDS": "4", "BERTH_SWEEP_SECONDS": "0.5",
}  # fmt: skip
SLICE, FAR = "eu-1-slice-1", "us-1-slice-1"
AGENT = {"BERTH_AGENT_HEARTBEAT_SECONDS": "0.5"}


@dataclass(frozen=True)
class Row:
    """A row of the table: the switches and the code that they lead to."""

    code: Code
    switches: dict[str, str]


PROVISION_ROWS = [
    Row(Code.LEASE_CONFLICT, {"lease_conflict": "1"}),
    Row(Code.IMAGE_DOWNLOAD_FAILED, {"image_download": "1"}),
    Row(Code.IMAGE_DOES_NOT_FIT, {"image_fit": "1"}),
    Row(Code.IMAGE_CHECKSUM_MISMATCH, {"image_checksum": "1"}),
    Row(Code.VFIO_HOST_NOT_READY, {"vfio": "1"}),
    Row(Code.HUGE_PAGES_SHORT, {"huge_pages": "1"}),
    Row(Code.DISK_POOL_SHORT, {"disk_pool": "1"}),
    Row(Code.GUEST_SIZE_UNAVAILABLE, {"guest_size": "1"}),
    Row(Code.GUEST_DEFINITION_FAILED, {"guest_definition": "1"}),
    Row(Code.SSH_READINESS_TIMEOUT, {"ssh_readiness": "0.2"}),
    Row(Code.GUEST_MARKER_MISSING, {"guest_marker": "0.2"}),
    Row(Code.AGENT_SILENT, {"agent_silent": "600"}),
]
SCOPES = ("allocation", "node")


@pytest.fixture(scope="module")
def whole(server_directory: Path) -> Iterator[Whole]:
    """A stack of this module's own, with short deadlines: two slice nodes and a bare-metal one."""
    environment = {
        "node-api": NODE_API,
        "worker": WORKER,
        **{f"agent {name}": AGENT for name in (SLICE, FAR, "eu-1-metal-1")},
    }
    options = StackOptions(server_directory / "failures" / "var", agents=3, wished_port=None, environment=environment)
    with Stack(options) as stack:
        yield Whole(stack)


@contextmanager
def thrown(whole: Whole, node: str, scope: str, switches: dict[str, str]) -> Iterator[dict[str, str]]:
    """The switches as labels of an allocation to be made; or, without labels, of the whole node for that long."""
    if scope == "allocation":
        yield {f"berth.fault/{name}": value for name, value in switches.items()}
        return
    node_id = whole.admin.get_node(node).id
    whole.set_faults(node_id, switches)
    try:
        yield {}
    finally:
        whole.set_faults(node_id, {})


def counted(whole: Whole, code: Code) -> float:
    """What the metric says."""
    return whole.gauge(f'berth_allocation_failures_total{{code="{code}"}}')


def event(whole: Whole, event_type: str, allocation_id: uuid.UUID) -> dict[str, Any]:
    """The payload of the only event of that type about the allocation, wherever it is on its way."""
    everywhere = "select event_type, payload from outbox union all select event_type, payload from log"
    statement = f"select payload from ({everywhere}) e where event_type = %s and payload ->> 'allocation_id' = %s"
    with psycopg.connect(whole.stack.endpoints.database_url, row_factory=dict_row) as connection:
        (row,) = connection.execute(statement.encode(), (event_type, str(allocation_id))).fetchall()
    payload: dict[str, Any] = row["payload"]
    return payload


def blocked(node: Node) -> list[tuple[uuid.UUID | None, str | None]]:
    """The owners that block slots of the node, and why."""
    assert node.slots is not None
    return [(slot.holder, slot.code) for slot in node.slots if slot.state == "cleanup_blocked"]


def require_told(whole: Whole, tenant: Tenant, ended: Allocation, code: Code, event_type: str) -> None:
    """Allocation, timeline and event name the code and the next step."""
    step = FAILURES[code].next_step
    assert ended.failure is not None
    assert (ended.failure.code, ended.failure.next_step) == (code, step)
    last = [entry for entry in tenant.client.iterate_timeline(ended.allocation_id) if entry.to == ended.status][-1]
    assert (last.code, last.next_step) == (code, step)
    told = event(whole, event_type, ended.allocation_id)
    assert (told["code"], told["next_step"]) == (code, step)


def require_clean(whole: Whole, node: str) -> None:
    """Every slot of the node is free again."""
    wait_for(lambda: whole.admin.get_node(node).free_slots == 8, f"the units of {node} are free again")


SLOW = (Code.LEASE_CONFLICT, Code.AGENT_SILENT)
"""Each waits ten seconds; test_way_of_one_allocation.py and test_cleanup_before_reuse.py of tests/allocations have them too."""


@pytest.mark.quick("image_download_failed-allocation", "guest_size_unavailable-node", "image_does_not_fit-node")
@pytest.mark.parametrize(
    ("row", "scope"),
    [
        # In the short run each row in one scope, and each scope with half of the rows; silence, which costs a whole
        # deadline, for an allocation.
        pytest.param(
            row, scope, marks=[] if scope == SCOPES[1 - number % 2] and row.code not in SLOW else [pytest.mark.full]
        )
        for number, row in enumerate(PROVISION_ROWS)
        for scope in SCOPES
    ],
    ids=lambda value: value.code.value if isinstance(value, Row) else value,
)
def test_a_provision_fails_as_the_table_says(whole: Whole, tenant: Tenant, row: Row, scope: str) -> None:
    before = counted(whole, row.code)
    with thrown(whole, SLICE, scope, row.switches) as labels:
        failed = tenant.wait(tenant.create(labels=labels), "active", "failed")
    assert failed.status == FAILURES[row.code].lands_in
    require_told(whole, tenant, failed, row.code, "provisioning.failed")
    notes = [entry.code for entry in tenant.client.iterate_timeline(failed.allocation_id) if entry.kind == "note"]
    assert notes.count("provision_attempt") == (1 if row.code is Code.LEASE_CONFLICT else 0)
    require_clean(whole, SLICE)
    wait_for(lambda: counted(whole, row.code) == before + 1, "the failure is counted once")


@pytest.mark.parametrize("scope", at_length(SCOPES, SCOPES[:1]))
def test_a_guest_that_cannot_be_asked_to_stop_is_destroyed(whole: Whole, tenant: Tenant, scope: str) -> None:
    before = counted(whole, Code.HARD_STOPPED)
    with thrown(whole, SLICE, scope, {"ssh_unreachable": "0.2"}) as labels:
        made = tenant.create(labels=labels)
        tenant.wait(made, "active")
        tenant.client.release_allocation(made.allocation_id)
        released = tenant.wait(made, "released")
    assert (released.hard_stopped, released.failure) == (True, None)
    notes = [entry.code for entry in tenant.client.iterate_timeline(made.allocation_id) if entry.kind == "note"]
    assert Code.HARD_STOPPED in notes
    assert event(whole, "provisioning.releasing.completed", made.allocation_id)["hard_stopped"] is True
    require_clean(whole, SLICE)
    wait_for(lambda: counted(whole, Code.HARD_STOPPED) == before + 1, "it is counted once")


@pytest.mark.parametrize("scope", at_length(SCOPES, SCOPES[:1]))
def test_an_exhausted_release_blocks_its_slot_until_it_is_forced(whole: Whole, tenant: Tenant, scope: str) -> None:
    before = counted(whole, Code.RELEASE_EXHAUSTED)
    with thrown(whole, SLICE, scope, {"wipe_fails": "1"}) as labels:
        made = tenant.create(labels=labels)
        active = tenant.wait(made, "active")
        tenant.client.release_allocation(made.allocation_id)
        stuck = tenant.wait(made, "release_failed")
    require_told(whole, tenant, stuck, Code.RELEASE_EXHAUSTED, "provisioning.release_failed")
    wait_for(lambda: counted(whole, Code.RELEASE_EXHAUSTED) == before + 1, "it is counted once")
    node = whole.admin.get_node(SLICE)
    assert blocked(node) == [(made.allocation_id, Code.RELEASE_EXHAUSTED)]
    assert node.cleanup_blocked_slots == 1
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        # The cause is removed; a label cannot be.
        connection.execute("update allocations set labels = '{}' where id = %s", (made.allocation_id,))
    whole.admin.force_release(made.allocation_id, reason="the cause is gone")
    released = tenant.wait(made, "released")
    assert (released.active_at, released.releasing_at) == (active.active_at, stuck.releasing_at)
    require_clean(whole, SLICE)


# Waits for the deadlines of a silent node; tests/worker/test_both_workflows.py has one in `make test`.
@pytest.mark.full
@pytest.mark.parametrize("scope", SCOPES)
def test_a_node_that_goes_offline_in_the_middle(whole: Whole, tenant: Tenant, scope: str) -> None:
    before = counted(whole, Code.CLEANUP_EXHAUSTED)
    with thrown(whole, FAR, scope, {"agent_dies": "1"}) as labels:
        made = tenant.create(labels=labels, region="us-1")
        failed = tenant.wait(made, "active", "failed")
        require_told(whole, tenant, failed, Code.NODE_OFFLINE, "provisioning.failed")
        wait_for(lambda: bool(blocked(whole.admin.get_node(FAR))), "the cleanup's attempts are exhausted")
    node = whole.admin.get_node(FAR)
    assert blocked(node) == [(made.allocation_id, Code.CLEANUP_EXHAUSTED)]
    assert node.slots is not None
    assert {slot.state for slot in node.slots} == {"cleanup_blocked", "out_of_service"}
    assert event(whole, "node.cleanup_blocked", made.allocation_id)["next_step"]
    wait_for(lambda: counted(whole, Code.CLEANUP_EXHAUSTED) == before + 1, "it is counted once")
    whole.start(f"agent {FAR}")
    wait_for(lambda: whole.admin.get_node(FAR).online, "the node is back")
    whole.admin.force_release(made.allocation_id, reason="the node is back")
    require_clean(whole, FAR)
    assert tenant.client.get_allocation(made.allocation_id).status == "failed"


# Long. tests/nodes retires nodes without agents.
@pytest.mark.full
def test_a_node_gone_for_good_is_retired_and_loses_no_record(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create(region="us-1")
    active = tenant.wait(made, "active")
    whole.kill(f"agent {FAR}")
    node = whole.admin.get_node(FAR)
    wait_for(lambda: not whole.admin.get_node(FAR).online, "the node is offline")
    with pytest.raises(NodeInUse) as refused:
        whole.admin.retire_node(node.id, reason="scrapped")
    assert [claim["owner_id"] for claim in refused.value.extra["claims"]] == [str(made.allocation_id)]
    with pytest.raises(InvalidState):
        whole.admin.force_cleanup(made.allocation_id, runtime_verified_absent=True, reason="scrapped")
    tenant.client.release_allocation(made.allocation_id)
    stuck = tenant.wait(made, "release_failed")
    assert stuck.failure is not None
    assert "node_offline" in (stuck.failure.detail or "")
    released = whole.admin.force_cleanup(made.allocation_id, runtime_verified_absent=True, reason="scrapped")
    assert (released.status, released.active_at, released.releasing_at) == (
        "released", active.active_at, stuck.releasing_at,
    )  # fmt: skip
    retired = whole.admin.retire_node(node.id, reason="scrapped")
    assert (retired.state, retired.online) == ("retired", False)
    assert retired.slots is not None
    assert {slot.state for slot in retired.slots} == {"out_of_service"}
    with pytest.raises(SkuUnavailable):
        tenant.create(region="us-1")
    told = [entry.action for entry in whole.admin.iterate_audit(subject=f"nodes/{node.id}")]
    assert told[-1] == "node.retire"
    assert tenant.client.get_allocation(made.allocation_id).node == FAR


def test_everything_that_was_promised_was_kept(whole: Whole) -> None:
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    assert whole.violations() == []
