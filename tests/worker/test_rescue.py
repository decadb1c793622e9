"""Waits whose workflow is lost are taken over long before their deadline; healthy workflows are left alone (P9)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client
from temporalio.service import RPCError

from berth.local.servers import LocalNats, LocalTemporal, free_port
from node_agent.protocol import ResultReport
from orchestrator.allocations.commands.waits import take_over_wait
from orchestrator.allocations.queries import find_waiters
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.due import Waiter
from orchestrator.allocations.waits import Wait
from orchestrator.operations.execution import Context
from tests.allocations.driving import release, row_of, rows_of, run_with, task_of
from tests.allocations.invariants import violations
from tests.allocations.seeding import connect, create_allocation, create_many, seed
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes, answer_well, play_nodes, release_all, state_of
from worker.sweepers.lost_workflows import FIRST_POSITION, WorkflowRescuer, rescue_id_of, responsible_workflow_ids
from worker.workflows.starting import WorkflowStarter, WorkflowStatus, rescue_workflow_id

AT_ONCE = {"sweep_seconds": 0.2, "rescue_seconds": 0.2, "rescue_patience_seconds": 0.5, "temporal_store_seconds": 0.2}
CONSUMER = "berth-worker"
OF_ALLOCATIONS = "select from node_tasks where allocation_id is not null"


@dataclass(frozen=True)
class Own:
    """Processes of one test and a Temporal that it may wipe."""

    processes: Processes
    temporal: LocalTemporal
    directory: Path

    def wipe_temporal(self) -> None:
        """As if its disk had been lost."""
        self.temporal.kill()
        shutil.rmtree(self.directory)
        self.temporal.start()

    def signal_temporal(self, number: signal.Signals) -> None:
        assert self.temporal.process is not None
        os.kill(self.temporal.process.pid, number)
        if number is signal.SIGSTOP:
            os.waitpid(self.temporal.process.pid, os.WUNTRACED)  # returns when every thread has stopped


@pytest.fixture
def own(database_url: str, own_nats: LocalNats, data_directory: Path, tmp_path: Path) -> Iterator[Own]:
    """Relay and worker not started yet."""
    directory = data_directory / "temporal"
    temporal = LocalTemporal(directory, free_port(), free_port())
    temporal.start()
    processes = Processes(database_url, own_nats, temporal.address, tmp_path)
    yield Own(processes, temporal, directory)
    processes.stop()
    temporal.stop()


@pytest.mark.full
def test_allocations_recover_from_a_wiped_temporal_before_any_deadline(own: Own) -> None:
    """Deadlines and the age at which waits are checked are minutes away: the new store is noticed.

    A task under way, one that ended meanwhile, and a release all go on.
    """
    processes, url = own.processes, own.processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker(**AT_ONCE | {"rescue_seconds": 600, "rescue_patience_seconds": 600})
    running, ended, releasing = create_many(url, seeded, 3)
    play_nodes(url, {releasing: "active", running: "provisioning", ended: "provisioning"}, _only(releasing, url))
    release_all(url, seeded, [releasing])
    play_nodes(url, {releasing: "releasing"}, lambda _: None)
    wait_for(lambda: "release" in task_of(url, releasing)["type"], "the release's task to be issued")
    own.wipe_temporal()
    play_nodes(url, {running: "active", ended: "active", releasing: "released"})
    wait_for(lambda: processes.metric("berth_rescued_total") >= 1, "the rescue to be counted")
    assert processes.metric("berth_temporal_stores_replaced_total") == 1
    assert violations(url) == []
    of_allocations = "select type, count(*) from node_tasks where allocation_id is not null group by type order by type"
    tasks = rows_of(url, of_allocations)
    assert tasks == [("slice.vm_provision", 3), ("slice.vm_release", 1)], "taken over, not begun anew"
    assert "allocation_rescued" in processes.log("worker")


def _only(wanted: uuid.UUID, url: str) -> Any:
    def answering(task: dict[str, Any]) -> ResultReport | None:
        return answer_well(task) if task["allocation_id"] == wanted else None

    del url
    return answering


def test_an_event_acknowledged_without_effect_is_recovered(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    allocation_id = create_allocation(url, seeded)
    wait_for(lambda: rows_of(url, "select from log"), "the event to have its version")
    with connect(url) as connection:
        connection.execute("insert into consumer_positions (consumer, version) values (%s, 1)", (CONSUMER,))
    processes.start_worker(**AT_ONCE)
    play_nodes(url, {allocation_id: "active"})
    assert task_of(url, allocation_id)["notify"] == rescue_workflow_id("provisioning", allocation_id)
    assert processes.metric("berth_rescued_total") == 1
    assert violations(url) == []


def test_a_terminated_workflow_is_replaced_and_a_running_one_is_left_alone(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker(**AT_ONCE)
    living, terminated = create_many(url, seeded, 2)
    wait_for(lambda: len(rows_of(url, OF_ALLOCATIONS)) == 2, "both tasks to be issued")
    before = task_of(url, living)["notify"]
    asyncio.run(_terminate(processes.temporal_address, task_of(url, terminated)["notify"]))
    wait_for(lambda: "overdue" in task_of(url, terminated)["notify"], "the terminated one to be taken over")
    play_nodes(url, {living: "active", terminated: "active"})
    assert task_of(url, living)["notify"] == before
    assert processes.metric("berth_rescued_total") == 1
    assert violations(url) == []


@pytest.mark.full
def test_every_wait_is_checked_in_pages_when_the_store_is_new_and_none_when_it_is_the_same(own: Own) -> None:
    """A round that Temporal interrupts goes on where it stopped."""
    url = own.processes.url
    seeded = seed(url)
    ids = create_many(url, seeded, 3)
    with connect(url) as connection:  # as if the events had been handed to a Temporal that lost them
        connection.execute("update allocations set waits_for = 'retry', waits_since = now()")

    async def rounds(context: Context) -> tuple[list[bool], list[bool], list[bool]]:
        client = await Client.connect(own.temporal.address)
        rescuer = WorkflowRescuer(
            context, WorkflowStarter(client, "none", 5, str), consumer=CONSUMER, patience_seconds=600, limit=2
        )
        await rescuer.run()
        assert await _unstarted(client, ids) == 3, "each is younger than the patience"
        first = [await rescuer.check_store() for _ in range(3)]
        assert await _unstarted(client, ids) == 0
        own.temporal.kill()
        with pytest.raises(RPCError):
            await rescuer.check_store()
        own.temporal.start()
        same = [await rescuer.check_store() for _ in range(2)]
        own.wipe_temporal()
        lost = [await rescuer.check_store()]
        own.temporal.kill()
        with pytest.raises(RPCError):
            await rescuer.check_store()
        own.temporal.start()
        lost += [await rescuer.check_store() for _ in range(2)]
        assert await _unstarted(client, ids) == 0
        return first, same, lost

    assert run_with(url, rounds) == ([True, False, False], [False, False], [True, False, False])


async def _unstarted(client: Client, ids: list[uuid.UUID]) -> int:
    """Of how many allocations no rescue workflow runs."""
    starter = WorkflowStarter(client, "none", 5, str)
    found = [await starter.status(rescue_workflow_id("provisioning", one)) for one in ids]
    return sum(status is not WorkflowStatus.RUNNING for status in found)


@pytest.mark.full
def test_a_frozen_temporal_ends_each_call_soon(own: Own) -> None:
    async def call() -> None:
        client = await Client.connect(own.temporal.address)
        starter = WorkflowStarter(client, "none", 5, str)
        own.signal_temporal(signal.SIGSTOP)
        calls = (
            starter.store_id(), starter.status("any"), starter.signal_task_finished("any", uuid.uuid4()),
            starter.start("provisioning", uuid.uuid4(), uuid.uuid4()), starter.start_rescue("provisioning", uuid.uuid4()),
        )  # fmt: skip
        # Without a bound of ours each ends after 30 seconds.
        found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
        assert [type(one) for one in found] == [RPCError] * 5

    try:
        asyncio.run(call())
    finally:
        own.signal_temporal(signal.SIGCONT)


@pytest.mark.full
def test_a_lost_signal_is_repeated_before_the_deadline(processes: Processes) -> None:
    """The relay is away, as when NATS is: the task's row says that it ended, and the deadline is minutes away."""
    url = processes.url
    seeded = seed(url)
    relay = processes.start_relay()
    processes.start_worker(**AT_ONCE)
    allocation_id = create_allocation(url, seeded)
    wait_for(lambda: rows_of(url, OF_ALLOCATIONS), "the task to be issued")
    relay.kill()
    relay.wait()
    play_nodes(url, {allocation_id: "active"})
    wait_for(lambda: processes.metric("berth_rescued_total") >= 1, "it to be counted")
    assert "workflow_woken" in processes.log("worker")
    assert violations(url) == []


async def _terminate(address: str, workflow_id: str) -> None:
    client = await Client.connect(address)
    await client.get_workflow_handle(workflow_id).terminate()


def test_an_overdue_task_without_a_workflow_is_expired(processes: Processes) -> None:
    """A probe that no workflow waits for; the earliest first, and those with time left stay."""
    url = processes.url
    seeded = seed(url)
    overdue, with_time = uuid.uuid4(), uuid.uuid4()
    with connect(url) as connection:
        for task_id, seconds in ((overdue, -60), (with_time, 600)):
            connection.execute(
                """insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at)
                   values (%s, %s, 1, 'diag.health_probe', 1, '{}', now(), now() + make_interval(secs => %s))""",
                (task_id, seeded.nodes[0].id, seconds),
            )
    processes.start_worker(sweep_seconds=0.2)
    wait_for(lambda: _state(url, overdue) == "expired", "the overdue task to be expired")
    assert _state(url, with_time) == "queued"
    event = row_of(url, "select payload from outbox where event_type = 'task.finished'")["payload"]
    assert (event["task_id"], event["outcome"]) == (str(overdue), "expired")
    wait_for(lambda: processes.metric("berth_rescued_total") == 1, "it to be counted")


def _state(url: str, task_id: uuid.UUID) -> str:
    return str(row_of(url, "select state from node_tasks where id = %s", task_id)["state"])


def test_a_wait_that_changed_since_it_was_read_is_not_taken_over(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        from orchestrator.allocations.commands.provision import begin_provisioning

        async def look() -> Waiter:
            found = await find_waiters(context, consumer=CONSUMER, patience_seconds=0, after=FIRST_POSITION, limit=10)
            (only,) = found
            return only

        requested = await look()
        assert (requested.state, requested.waits_for, requested.event_id) == (
            AllocationState.REQUESTED, Wait.WORKER, None,
        )  # fmt: skip
        await begin_provisioning(context, allocation_id, "wf")
        assert not await take_over_wait(context, requested, "rescue")
        waiting = await look()
        assert (waiting.notify, waiting.waits_for) == ("wf", Wait.NODE)
        assert not await take_over_wait(context, replace(waiting, notify="another"), "rescue")
        assert await take_over_wait(context, waiting, "rescue")
        assert task_of(database_url, allocation_id)["notify"] == "rescue"
        assert not await take_over_wait(context, waiting, "second rescue"), "the first rescue owns it now"
        waiting = await look()
        await release(context, seeded, allocation_id)
        assert not await take_over_wait(context, waiting, "rescue")

    run_with(database_url, way)
    assert state_of(database_url, allocation_id) == "releasing"


def test_waits_are_paged_completely_in_order_of_their_deadlines(database_url: str) -> None:
    seeded = seed(database_url)
    ids = [create_allocation(database_url, seeded, start_seconds=seconds) for seconds in (30, 10, 20, 40, 15)]

    async def way(context: Context) -> list[uuid.UUID]:
        seen: list[uuid.UUID] = []
        after = FIRST_POSITION
        while True:
            found = await find_waiters(context, consumer=CONSUMER, patience_seconds=0, after=after, limit=2)
            if not found:
                return seen
            seen += [one.allocation_id for one in found]
            after = (found[-1].waits_until, found[-1].allocation_id)

    assert run_with(database_url, way) == [ids[1], ids[4], ids[2], ids[0], ids[3]]


WAITER = Waiter(
    allocation_id=uuid.uuid4(), waits_until=datetime.now(UTC), state=AllocationState.RELEASING, waits_for=Wait.WORKER,
    row_version=3, fence=9, task_id=None, notify=None, task_ended=False, event_type="provisioning.releasing.requested",
    event_id=uuid.uuid4(), event_version=5, position=5,
)  # fmt: skip


@given(
    waits_for=st.sampled_from([Wait.WORKER, Wait.CLEANUP, Wait.NODE, Wait.RETRY]), position=st.integers(0, 9),
    known=st.booleans(), notify=st.sampled_from([None, "wf"]),
)  # fmt: skip
def test_a_wait_whose_event_is_not_delivered_yet_is_not_rescued(
    waits_for: Wait, position: int, known: bool, notify: str | None
) -> None:
    waiter = replace(WAITER, waits_for=waits_for, position=position, notify=notify)
    if not known:
        waiter = replace(waiter, event_id=None, event_version=None, event_type=None)
    found = responsible_workflow_ids(waiter)
    if waits_for in (Wait.NODE, Wait.RETRY):
        assert found == ([] if notify is None else [notify])
    elif (known and position < 5) or (not known and waits_for is Wait.WORKER):
        assert found is None
    else:
        assert found is not None
        assert rescue_id_of(waiter) in found
        assert known == (f"releasing-{waiter.event_id}" in found)
        assert (notify in found) == (notify is not None)
