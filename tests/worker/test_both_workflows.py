"""Both workflows over real Temporal, NATS and PostgreSQL: provisioning, release, retries, cleanup after a failure.

`python -m tests.worker.save_histories` records histories of such runs, which `test_replay.py` replays.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from node_agent.protocol import FailureCode, ResultReport
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.states import Verb
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    NOT_WIPED,
    TENANT,
    allocation_of,
    claim_of,
    completed,
    failed,
    operation,
    run_with,
    task_of,
    transitions_of,
)
from tests.allocations.invariants import violations
from tests.allocations.seeding import Seeded, create_allocation, seed
from tests.support.waiting import wait_for
from tests.support.worker_processes import (
    Processes,
    answer_well,
    answer_what_is_queued,
    play_nodes,
    release_all,
    state_of,
)


@pytest.fixture(scope="module")
def seeded(at_work: Processes) -> Seeded:
    """A slice node and a bare-metal one."""
    return seed(at_work.url, slice_nodes=1, metal_nodes=1)


def test_an_allocation_is_provisioned_and_released(at_work: Processes, seeded: Seeded) -> None:
    url = at_work.url
    before = at_work.metric("berth_worker_conclusions_total")
    ids = [create_allocation(url, seeded, gpus=2), create_allocation(url, seeded, shape="baremetal")]
    play_nodes(url, dict.fromkeys(ids, "active"))
    release_all(url, seeded, ids)
    play_nodes(url, dict.fromkeys(ids, "released"))
    for allocation_id in ids:
        assert transitions_of(url, allocation_id) == ["requested", "provisioning", "active", "releasing", "released"]
    assert violations(url) == []
    # Temporal runs a local activity again whose result a signal overtook: four conclude, and each may be counted twice.
    assert 4 <= at_work.metric("berth_worker_conclusions_total") - before <= 8


def test_a_verb_is_performed_by_its_workflow(at_work: Processes, seeded: Seeded) -> None:
    url = at_work.url
    before = at_work.metric("berth_worker_verbs_total")
    allocation_id = create_allocation(url, seeded)
    play_nodes(url, {allocation_id: "active"})
    assert _guest_after(url, seeded, allocation_id, Verb.STOP) == "stopped"
    assert _guest_after(url, seeded, allocation_id, Verb.REBUILD) == "running"
    wait_for(lambda: at_work.metric("berth_worker_verbs_total") - before == 2, "both counted")
    release_all(url, seeded, [allocation_id])
    play_nodes(url, {allocation_id: "released"})
    assert violations(url) == []


def _guest_after(url: str, seeded: Seeded, allocation_id: UUID, verb: Verb) -> object:
    """The state of the guest once the verb has ended."""

    async def order(context: Context) -> None:
        await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, allocation_id, verb)

    run_with(url, order)
    wait_for(lambda: task_of(url, allocation_id)["type"] == f"allocation.{verb}", "the task of the verb")
    answer_what_is_queued(url)
    wait_for(lambda: allocation_of(url, allocation_id)["guest_verb"] is None, "the end of the verb")
    return allocation_of(url, allocation_id)["guest_state"]


def test_a_failed_provision_is_cleaned_up_by_its_own_workflow(at_work: Processes, seeded: Seeded) -> None:
    url = at_work.url
    allocation_id = create_allocation(url, seeded)

    def answering(task: dict[str, Any]) -> ResultReport | None:
        return failed(task, FailureCode.SSH_READINESS_TIMEOUT) if "provision" in task["type"] else answer_well(task)

    play_nodes(url, {allocation_id: "failed"}, answering)
    assert claim_of(url, allocation_id)["closed_at"] is not None
    assert allocation_of(url, allocation_id)["failure_code"] == "ssh_readiness_timeout"
    assert violations(url) == []


def test_a_failed_release_attempt_is_retried(at_work: Processes, seeded: Seeded) -> None:
    assert _release_with_one_failed_attempt(at_work.url, seeded, "released") == 2
    assert violations(at_work.url) == []


def test_a_release_fails_when_attempts_are_exhausted(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker(release_attempts_max=1)
    assert _release_with_one_failed_attempt(url, seeded, "release_failed") == 1
    assert violations(url) == []


def _release_with_one_failed_attempt(url: str, seeded: Seeded, end: str) -> int:
    """Fail the first cleanup attempt; the number of attempts until the state is `end`."""
    allocation_id = create_allocation(url, seeded)
    play_nodes(url, {allocation_id: "active"})
    release_all(url, seeded, [allocation_id])
    seen: Counter[str] = Counter()

    def answering(task: dict[str, Any]) -> ResultReport | None:
        seen[task["type"]] += 1
        return completed(task, NOT_WIPED) if seen[task["type"]] == 1 else answer_well(task)

    play_nodes(url, {allocation_id: end}, answering)
    assert claim_of(url, allocation_id)["occupied"] is (end == "release_failed")
    return seen["slice.vm_release"]


def test_a_silent_node_fails_the_allocation_at_its_deadline(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker(provision_seconds_max=0.2, release_seconds_max=0.2, release_attempts_max=1)
    allocation_id = create_allocation(url, seeded)
    wait_for(lambda: state_of(url, allocation_id) == "failed", "the provision to fail")
    wait_for(lambda: claim_of(url, allocation_id)["waits_for"] == "operator", "cleanup to be given up")
    assert allocation_of(url, allocation_id)["failure_code"] == "agent_silent"
    assert claim_of(url, allocation_id)["occupied"] is True
    assert violations(url) == []
