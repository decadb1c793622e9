"""Killed workers, redelivered events, restarted servers: every allocation still reaches its state (P3, P14)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nats
import pytest

from berth.local.servers import LocalNats, LocalTemporal, free_port
from tests.allocations.driving import row_of, rows_of
from tests.allocations.invariants import violations
from tests.allocations.seeding import connect, create_allocation, create_many, seed
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.support.worker_processes import Processes, answer_what_is_queued, play_nodes, release_all, state_of
from worker.consumers.events import CONSUMED_TYPES

CONSUMER = "berth-worker"
STREAM = "BERTH_LOG"


# tests/whole/test_trouble.py kills a worker in the middle in `make test`.
@pytest.mark.full
def test_a_worker_killed_in_the_middle_loses_nothing(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url, slice_nodes=2)
    processes.start_relay()
    worker = processes.start_worker()
    ids = create_many(url, seeded, 8)
    wait_for(lambda: _states(url).get("provisioning", 0) >= 3, "some to be under way")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    # The node reports while no worker runs; what it reported waits in the log.
    answer_what_is_queued(url)
    processes.start_worker()
    play_nodes(url, dict.fromkeys(ids, "active"))
    release_all(url, seeded, ids)
    play_nodes(url, dict.fromkeys(ids, "released"))
    tasks = rows_of(url, "select count(*) from node_tasks where type = 'slice.vm_provision'")
    assert tasks == [(8,)], "nothing was provisioned twice"
    assert violations(url) == []


def _states(url: str) -> dict[str, int]:
    return dict(rows_of(url, "select state, count(*) from allocations group by state"))


def test_redelivered_events_have_no_effect(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    worker = processes.start_worker()
    allocation_id = create_allocation(url, seeded)
    play_nodes(url, {allocation_id: "active"})
    release_all(url, seeded, [allocation_id])
    play_nodes(url, {allocation_id: "released"})
    wait_for(lambda: _position(url) >= _last_version(url, "task.finished"), "the position to be saved")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_SECONDS_MAX) == 0
    before = _everything(url)

    asyncio.run(_forget_consumer(processes.nats))
    with connect(url) as connection:
        connection.execute("delete from consumer_positions where consumer = %s", (CONSUMER,))
    processes.start_worker()
    consumed = "select count(*) from log where event_type in ('provisioning.requested', 'task.finished')"
    again = rows_of(url, consumed)[0][0] + 1
    wait_for(lambda: processes.metric("berth_worker_events_total") == again, "all events to come again")
    assert processes.metric("berth_worker_conclusions_total") == 0
    assert _everything(url) == before


@pytest.mark.full
def test_a_recreated_consumer_starts_at_the_saved_position(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker()
    first = create_allocation(url, seeded)
    play_nodes(url, {first: "active"})
    wait_for(lambda: _position(url) >= _last_version(url, "task.finished"), "the position to be saved")
    asyncio.run(_forget_consumer(processes.nats))
    second = create_allocation(url, seeded)
    play_nodes(url, {second: "active"})
    assert processes.metric("berth_worker_pull_renewals_total") >= 1
    wait_for(lambda: _position(url) >= _last_version(url, "task.finished"), "the last event to be counted")
    # Two of the first allocation's, two of the second's, and the discoveries': none came again.
    (consumed,) = rows_of(url, "select count(*) from log where event_type = any (%s)", list(CONSUMED_TYPES))[0]
    assert consumed >= 4
    assert processes.metric("berth_worker_events_total") == consumed


async def _forget_consumer(server: LocalNats) -> None:
    connection = await nats.connect(server.url)
    await connection.jetstream().delete_consumer(STREAM, CONSUMER)
    await connection.close()


def _position(url: str) -> int:
    found = rows_of(url, "select version from consumer_positions where consumer = %s", CONSUMER)
    return int(found[0][0]) if found else 0


def _last_version(url: str, event_type: str) -> int:
    return int(row_of(url, "select max(version) as version from log where event_type = %s", event_type)["version"])


def _everything(url: str) -> list[list[Any]]:
    tables = ("allocations", "claims", "node_tasks", "allocation_timeline", "log")
    return [rows_of(url, f"select * from {table} order by 1") for table in tables]


def test_an_unreadable_message_becomes_a_dead_letter(processes: Processes) -> None:
    """It neither stops the consumer nor comes again."""
    asyncio.run(_publish_nonsense(processes.nats))
    processes.start_worker(worker_ack_wait_seconds=15)
    wait_for(lambda: processes.metric("berth_worker_events_total") >= len(NONSENSE), "all to be looked at")
    wait_for(lambda: asyncio.run(_unsettled(processes.nats)) == 0, "nothing to be left unacknowledged")
    assert processes.metric("berth_worker_events_total") == len(NONSENSE)
    assert processes.log("worker").count("event_unreadable") == len(NONSENSE)


NONSENSE = [
    b"",
    b"not json",
    b"[]",
    b'{"id": "x", "type": "berth.task.finished", "time": "now", "data": {}}',
    b'{"id": "01a1fbf6-543b-75a2-bd0a-c0d5ff233a7f", "type": "berth.task.finished", "time": "2026-01-01T00:00:00Z"}',
    b'{"id": "01a1fbf6-543b-75a2-bd0a-c0d5ff233a7f", "type": "berth.x", "time": "2026-01-01T00:00:00Z", "data": {}}',
]


async def _publish_nonsense(server: LocalNats) -> None:
    connection = await nats.connect(server.url)
    jetstream = connection.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=["berth.events.>"])
    for body in NONSENSE:
        await jetstream.publish("berth.events.operator.task.finished", body)
    await connection.close()


async def _unsettled(server: LocalNats) -> int:
    connection = await nats.connect(server.url)
    info = await connection.jetstream().consumer_info(STREAM, CONSUMER)
    await connection.close()
    return (info.num_ack_pending or 0) + (info.num_pending or 0)


@pytest.mark.full
def test_allocations_survive_a_nats_restart(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker()
    ids = create_many(url, seeded, 2)
    play_nodes(url, {ids[0]: "active", ids[1]: "active"})
    processes.nats.kill()
    release_all(url, seeded, ids)
    processes.nats.start()
    play_nodes(url, dict.fromkeys(ids, "released"))
    assert violations(url) == []


@pytest.mark.full
def test_allocations_survive_a_temporal_restart(
    database_url: str, own_nats: LocalNats, data_directory: Path, tmp_path: Path
) -> None:
    temporal = LocalTemporal(data_directory / "temporal", free_port(), free_port())
    temporal.start()
    processes = Processes(database_url, own_nats, temporal.address, tmp_path)
    try:
        seeded = seed(database_url)
        processes.start_relay()
        processes.start_worker()
        waiting = create_allocation(database_url, seeded)
        wait_for(lambda: state_of(database_url, waiting) == "provisioning", "a workflow to wait for its task")
        temporal.kill()
        created_meanwhile = create_allocation(database_url, seeded)
        play_nodes(database_url, {waiting: "provisioning"})
        temporal.start()
        play_nodes(database_url, {waiting: "active", created_meanwhile: "active"})
        assert violations(database_url) == []
    finally:
        processes.stop()
        temporal.stop()


@pytest.mark.full
def test_overdue_allocations_are_ended_by_a_sweeper_without_events(processes: Processes) -> None:
    """No relay, so no event ever arrives; the deadlines hold nevertheless."""
    url = processes.url
    seeded = seed(url)
    overdue = create_allocation(url, seeded, start_seconds=-60)
    stuck = create_allocation(url, seeded)
    release_all(url, seeded, [stuck])
    with connect(url) as connection:
        connection.execute(
            "update allocations set waits_until = clock_timestamp() - interval '60 s' where id = %s", (stuck,)
        )
    processes.start_worker(sweep_seconds=0.2)
    wait_for(
        lambda: rows_of(url, "select from node_tasks where allocation_id is not null having count(*) = 2"),
        "both cleanups to begin",
    )
    # The rescuers' signals come with the log.
    processes.start_relay()
    play_nodes(url, {overdue: "failed", stuck: "released"})
    assert row_of(url, "select failure_code from allocations where id = %s", overdue)["failure_code"] == "not_started"
    assert violations(url) == []


def test_a_missing_server_or_setting_is_named_at_exit(processes: Processes) -> None:
    """A process for each server that is not there, side by side."""
    cases = {
        "waited 0 s for Temporal at 127.0.0.1:1": {"BERTH_TEMPORAL_ADDRESS": "127.0.0.1:1"},
        "waited 0 s for NATS at nats://127.0.0.1:1": {"BERTH_NATS_URL": "nats://127.0.0.1:1"},
        "waited 0 s for the database": {"BERTH_DATABASE_URL": "postgresql://absent:x@127.0.0.1:1/none"},
        "the task signing key cannot be used": {"BERTH_TASK_SIGNING_KEY_FILE": "/nonexistent/key.pem"},
        "the payload keys cannot be used": {"BERTH_TEMPORAL_PAYLOAD_KEY_FILE": str(processes.signing_key)},
        "Temporal cannot be reached with these settings: BERTH_TEMPORAL_CA_FILE cannot be read": {
            "BERTH_TEMPORAL_CA_FILE": "/nonexistent/ca.pem"
        },
        "BERTH_TASK_SIGNING_KEY_FILE: Field required": {},
    }
    running = {}
    for said, changed in cases.items():
        environment = {**processes.environment(), "BERTH_STARTUP_SECONDS_MAX": "0.2", **changed}
        if not changed:
            del environment["BERTH_TASK_SIGNING_KEY_FILE"]
        command = [sys.executable, "-m", "worker"]
        running[said] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    for said, process in running.items():
        _, told = process.communicate(timeout=WAIT_SECONDS_MAX)
        assert process.returncode == 1
        assert said in told.strip().splitlines()[-1]
