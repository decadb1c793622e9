"""A worker or relay is paused (SIGSTOP) while another takes over, and resumed: no effect is repeated or undone (P7)."""

from __future__ import annotations

import signal

import pytest

from berth.cli.deployment.stream_check import check_stream
from tests.allocations.driving import row_of, rows_of
from tests.allocations.invariants import violations
from tests.allocations.seeding import connect, create_allocation, create_many, seed
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes, play_nodes, release_all

COUNT = 6


# Half a minute of timeouts. In `make test` tests/allocations refuses the writes of a superseded attempt by fence and version.
@pytest.mark.full
def test_a_resumed_worker_changes_nothing_that_another_finished(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url, slice_nodes=2)
    processes.start_relay()
    first = processes.start_worker(transaction_timeout_seconds=3)
    ids = create_many(url, seeded, COUNT)
    wait_for(lambda: rows_of(url, "select from node_tasks where allocation_id is not null"), "some to be under way")
    first.send_signal(signal.SIGSTOP)
    processes.start_worker(transaction_timeout_seconds=3)
    play_nodes(url, dict.fromkeys(ids, "active"))
    release_all(url, seeded, ids[:3])
    play_nodes(url, {**dict.fromkeys(ids[:3], "released"), **dict.fromkeys(ids[3:], "active")})
    before = rows_of(url, "select id, state, row_version from allocations order by id")
    first.send_signal(signal.SIGCONT)
    more = create_many(url, seeded, COUNT)
    play_nodes(url, dict.fromkeys(more, "active"))
    wait_for(lambda: processes.log("worker").count("event_handled") >= 4 * COUNT, "everything to be handled")
    after = rows_of(url, "select id, state, row_version from allocations where id = any(%s) order by id", ids)
    assert after == before
    release_all(url, seeded, [*ids[3:], *more])
    play_nodes(url, dict.fromkeys([*ids, *more], "released"))
    tasks = rows_of(
        url,
        "select allocation_id, type from node_tasks where allocation_id is not null group by 1, 2 having count(*) > 1",
    )
    assert tasks == [], "nothing was issued twice"
    assert violations(url) == []


def test_a_resumed_relay_publishes_nothing_twice(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url)
    first = processes.start_relay()
    made = [create_allocation(url, seeded)]
    wait_for(lambda: _unsequenced(url) == 0, "the first relay to work")
    first.send_signal(signal.SIGSTOP)
    # If it is paused inside a transaction, the transaction times out; the second relay waits no longer than that.
    second = processes.start_relay()
    made.append(create_allocation(url, seeded))
    wait_for(lambda: _unsequenced(url) == 0, "the second relay to take over")
    first.send_signal(signal.SIGCONT)
    second.send_signal(signal.SIGSTOP)
    made.append(create_allocation(url, seeded))
    wait_for(lambda: _unsequenced(url) == 0, "the first relay to go on")
    second.send_signal(signal.SIGCONT)
    made.append(create_allocation(url, seeded))
    wait_for(lambda: _unsequenced(url) == 0, "either to go on")
    wait_for(lambda: check_stream(url, processes.nats.url).kept, "the stream to be the log")
    assert row_of(url, "select count(*) as events, max(version) as last from log") == {"events": 4, "last": 4}
    assert first.poll() is None
    assert second.poll() is None


def _unsequenced(url: str) -> int:
    with connect(url) as connection:
        row = connection.execute("select count(*) from outbox").fetchone()
    assert row is not None
    return int(row[0])
