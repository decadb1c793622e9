"""Events that cannot be handled: bounded tries, a dead letter with its reason, no other event delayed, retry on order."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import nats
import pytest

from berth.local.servers import LocalNats
from orchestrator.log.commands import discard_dead_letter, retry_dead_letter
from orchestrator.operations.execution import Context
from orchestrator.problems import InvalidState, Problem
from tests.allocations.driving import ADMIN, operation, row_of, rows_of, run_with
from tests.allocations.invariants import violations
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.support.worker_processes import Processes, play_nodes

STREAM = "BERTH_LOG"
CONSUMER = "berth-worker"
IMPATIENT = {"worker_retry_event_seconds": 0.05, "worker_event_tries_max": 3, "sweep_seconds": 0.2}


def leave_task_finished(url: str, notify: object) -> uuid.UUID:
    """Commit the event of a finished task that wakes `notify`."""
    payload = {
        "task_id": str(uuid.uuid4()), "allocation_id": None, "type": "diag.health_probe", "outcome": "completed",
        "fence": 1, "notify": notify, "queued_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    with connect(url) as connection:
        row = connection.execute(
            "insert into outbox (event_type, correlation_id, subject, payload)"
            " values ('task.finished', uuidv7(), 'tasks/x', %s) returning event_id",
            (json.dumps(payload),),
        ).fetchone()
    assert row is not None
    return uuid.UUID(str(row[0]))


def letters(url: str) -> list[dict[str, Any]]:
    """All dead letters, oldest first."""
    found = rows_of(url, "select to_jsonb(d) from dead_letters d order by version")
    return [dict(row[0]) for row in found]


def ask_for_retry(url: str, seeded: Seeded, letter: dict[str, Any]) -> None:
    """As an operator does."""

    async def ask(context: Context) -> None:
        answer = await retry_dead_letter(context, operation(seeded), ADMIN, uuid.UUID(letter["id"]))
        assert answer.status == 202

    run_with(url, ask)


async def unsettled(server: LocalNats) -> int:
    """Messages that wait at the consumer, taken or not."""
    connection = await nats.connect(server.url)
    try:
        info = await connection.jetstream().consumer_info(STREAM, CONSUMER)
    finally:
        await connection.close()
    return (info.num_ack_pending or 0) + (info.num_pending or 0)


def test_a_refused_event_becomes_a_dead_letter_and_blocks_no_other(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    # Temporal refuses an empty workflow id with INVALID_ARGUMENT; a number is none at all, so the handler fails.
    refused = leave_task_finished(url, "")
    broken = leave_task_finished(url, 42)
    processes.start_relay()
    processes.start_worker(**IMPATIENT)
    allocation_id = create_allocation(url, seeded)
    play_nodes(url, {allocation_id: "active"})
    wait_for(lambda: len(letters(url)) == 2, "both to be given up")
    first, second = letters(url)
    assert (first["version"], first["event_id"], first["reason"], first["tries"]) == (1, str(refused), "refused", 3)
    assert first["detail"].startswith("INVALID_ARGUMENT")
    assert (second["version"], second["event_id"], second["reason"]) == (2, str(broken), "handler_error")
    assert {first["event_type"], second["event_type"]} == {"task.finished"}
    assert str(broken) in second["excerpt"]
    wait_for(lambda: asyncio.run(unsettled(processes.nats)) == 0, "no message to be left over")
    assert processes.metric("berth_worker_events_given_up_total") == 2
    wait_for(lambda: processes.metric("berth_worker_dead_letters") == 2, "the dead to be counted")

    # The same handler says the same again; the letter stays, and says so.
    ask_for_retry(url, seeded, first)
    wait_for(lambda: letters(url)[0]["tries"] == 4, "the retry")
    again = letters(url)[0]
    assert (again["state"], again["reason"], again["retry_asked_at"]) == ("dead", "refused", None)

    async def discard(context: Context) -> None:
        given = uuid.UUID(again["id"])
        assert (await discard_dead_letter(context, operation(seeded), ADMIN, given, "not needed")).status == 200
        answer = await retry_dead_letter(context, operation(seeded), ADMIN, given)
        assert json.loads(answer.body)["code"] == InvalidState.code

    run_with(url, discard)
    assert letters(url)[0]["state"] == "discarded"
    audited = rows_of(url, "select action from audit where subject = %s order by id", f"dead-letters/{again['id']}")
    assert [row[0] for row in audited] == ["dead_letter.retry", "dead_letter.discard"]
    wait_for(lambda: processes.metric("berth_worker_dead_letters") == 1, "one to be left")


def test_a_stub_is_buried_and_its_retry_handles_the_event_of_the_log(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    allocation_id = create_allocation(url, seeded)
    with connect(url) as connection:
        # NATS knows the id already when the event arrives, so a stub takes its position (docs/reference/events.md).
        connection.execute(
            "insert into outbox (id, event_id, event_type, correlation_id, subject, payload) overriding system value"
            " select 0, event_id, 'test.before', correlation_id, subject, '{}' from outbox"
        )
    processes.start_relay()
    processes.start_worker(**IMPATIENT)
    wait_for(lambda: letters(url), "the stub to be buried")
    (letter,) = letters(url)
    assert (letter["version"], letter["reason"], letter["tries"]) == (2, "stub", 1)
    assert letter["event_type"] == "provisioning.requested"
    assert "duplicate" in letter["detail"]
    assert row_of(url, "select state from allocations where id = %s", allocation_id)["state"] == "requested"
    ask_for_retry(url, seeded, letter)
    play_nodes(url, {allocation_id: "active"})
    wait_for(lambda: letters(url)[0]["state"] == "retried", "the letter to be settled")
    settled = letters(url)[0]
    assert settled["settled_at"] is not None
    assert settled["retry_asked_at"] is None
    assert violations(url) == []


@pytest.mark.full
def test_a_settled_letter_stays_settled_when_its_message_is_redelivered(processes: Processes) -> None:
    """A rebuilt stream brings everything again to a consumer whose position was lost."""
    url = processes.url
    seeded = seed(url)
    leave_task_finished(url, "")
    processes.start_relay()
    worker = processes.start_worker(**IMPATIENT)
    wait_for(lambda: letters(url), "it to be given up")
    (letter,) = letters(url)

    async def discard(context: Context) -> None:
        await discard_dead_letter(context, operation(seeded), ADMIN, uuid.UUID(letter["id"]), "known")

    run_with(url, discard)
    worker.terminate()
    assert worker.wait(WAIT_SECONDS_MAX) == 0
    with connect(url) as connection:
        connection.execute("delete from consumer_positions")
    asyncio.run(_forget_consumer(processes.nats))
    before = letters(url)
    processes.start_worker(**IMPATIENT)
    wait_for(lambda: processes.metric("berth_worker_events_given_up_total") == 1, "it to be given up again")
    assert letters(url) == before


async def _forget_consumer(server: LocalNats) -> None:
    connection = await nats.connect(server.url)
    await connection.jetstream().delete_consumer(STREAM, CONSUMER)
    await connection.close()


def test_a_letter_without_an_event_in_the_log_cannot_be_retried(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    asyncio.run(_publish_foreign(processes.nats))
    processes.start_worker(**IMPATIENT)
    wait_for(lambda: letters(url), "it to be buried")
    (letter,) = letters(url)
    assert (letter["reason"], letter["event_id"]) == ("unreadable", None)
    assert letter["excerpt"].startswith("not \ufffd")
    ask_for_retry(url, seeded, letter)
    wait_for(lambda: letters(url)[0]["tries"] == 2, "the retry")
    assert "the log has no version 1" in letters(url)[0]["detail"]


async def _publish_foreign(server: LocalNats) -> None:
    connection = await nats.connect(server.url)
    jetstream = connection.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=["berth.events.>"])
    await jetstream.publish("berth.events.operator.task.finished", b"not \x00 text \xff")
    await connection.close()


def test_retention_deletes_only_settled_letters(processes: Processes) -> None:
    url = processes.url
    seed(url)
    with connect(url) as connection:
        connection.execute(
            "insert into dead_letters (consumer, version, reason, detail, excerpt, tries, state, first_at, settled_at)"
            " select 'berth-worker', n, 'refused', '', '', 1, case when n = 1 then 'dead' else 'discarded' end, now(),"
            " case when n > 1 then now() - make_interval(hours => n) end from generate_series(1, 3) n"
        )
    processes.start_worker(**IMPATIENT, worker_dead_letter_retention_seconds=9_000)
    wait_for(lambda: len(letters(url)) < 3, "the old one to be forgotten")
    assert [letter["version"] for letter in letters(url)] == [1, 2]


def test_an_unknown_letter_is_not_found(processes: Processes) -> None:
    seeded = seed(processes.url)

    async def retry(context: Context) -> None:
        answer = await retry_dead_letter(context, operation(seeded), ADMIN, uuid.uuid4())
        assert (answer.status, json.loads(answer.body)["code"]) == (404, "not_found")

    try:
        run_with(processes.url, retry)
    except Problem as problem:
        pytest.fail(f"a refusal is an answer: {problem.detail}")
