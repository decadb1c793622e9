"""Versions are gapless and never before their cause, each committed event has one (DESIGN P3, §7).

Writers commit in another order than they drew their ids, wait for each other's rows, roll back, and stay open for long,
while several sequencers run and their sessions are terminated.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from berth.process.database_connections import ANSWER_SECONDS_MAX
from berth.process.restore_gate import require_no_restore_now
from migrations.roles import Role
from outbox_relay import sequencing
from outbox_relay.metrics import Metrics
from outbox_relay.sequencing import Sequencer
from outbox_relay.settings import Settings
from outbox_relay.state import RelayState
from tests.databases import as_role
from tests.outbox_relay.relays import head_version, leave_events, log_rows, outbox_is_empty
from tests.support.waiting import wait_for

WRITERS = 10
SUBJECTS = 40
HOT_SUBJECTS = 4
COMMITS_MIN = 1_500
KILLS_MIN = 8
LONG_TRANSACTIONS_MIN = 3

LEAVE = """
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, payload)
    values (%(event)s, 'subject.counted', uuidv7(), %(tenant)s, %(subject)s::text,
            jsonb_build_object('subject', %(subject)s::text, 'count', %(count)s::bigint))"""


class Writers:
    """What the writers share: what they committed, and when it is enough."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        self.enough = threading.Event()
        self.lock = threading.Lock()
        self.committed: set[uuid.UUID] = set()
        self.long_transactions = 0
        self.rollbacks = 0

    def count_up(self, connection: psycopg.Connection, subject: int) -> uuid.UUID:
        """Count a subject up by one and emit its event: the count separates cause from effect."""
        row = connection.execute(
            "update subjects set count = count + 1 where id = %s returning tenant_id, count", (subject,)
        ).fetchone()
        assert row is not None
        event = uuid.uuid4()
        connection.execute(LEAVE, {"event": event, "tenant": row[0], "subject": str(subject), "count": row[1]})
        return event

    def write(self, seed: int) -> None:
        """Short transactions: half on few hot subjects, so that they queue; some paused, some rolled back."""
        choose = random.Random(seed)
        with psycopg.connect(self.database_url) as connection:
            while not self.enough.is_set():
                # Draws its transaction id before it waits for a lock: its id is older than those of its causes.
                connection.execute("insert into drawn (writer) values (%s)", (seed,))
                hot = choose.random() < 0.5
                event = self.count_up(connection, choose.randint(1, HOT_SUBJECTS if hot else SUBJECTS))
                if choose.random() < 0.1:
                    self.enough.wait(choose.random() * 0.02)
                if choose.random() < 0.1:
                    connection.rollback()
                    self.rollbacks += 1
                    continue
                connection.commit()
                with self.lock:
                    self.committed.add(event)

    def stay_open(self) -> None:
        """Hold one low outbox id uncommitted until hundreds of higher ones are committed."""
        subject = SUBJECTS + 1  # used by no other writer, so no lock is awaited
        with psycopg.connect(self.database_url) as connection:
            while not self.enough.is_set():
                event = self.count_up(connection, subject)
                before = len(self.committed)
                wait_for(
                    lambda before=before: len(self.committed) >= before + 250 or self.enough.is_set(),  # type: ignore[misc]
                    "others to commit",
                )
                connection.commit()
                with self.lock:
                    self.committed.add(event)
                self.long_transactions += 1


@contextmanager
def sequencers(database_url: str, number: int) -> Iterator[list[Metrics]]:
    """`number` sequencers of small batches at once; none may have died in the end."""
    stopping = threading.Event()
    settings = Settings(
        database_url=as_role(database_url, Role.RELAY),
        nats_url="nats://none",
        relay_sequence_batch_max=20,
        relay_poll_seconds=0.002,
    )
    died: list[BaseException] = []

    def run(sequencer: Sequencer) -> None:
        try:
            sequencer.run()
        except BaseException as error:
            died.append(error)
            raise

    metrics = [Metrics() for _ in range(number)]
    threads = [
        threading.Thread(target=run, args=(Sequencer(settings, each, RelayState(), lambda _: None, stopping),))
        for each in metrics
    ]
    for thread in threads:
        thread.start()
    try:
        yield metrics
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert died == []


def terminate_one(database: psycopg.Connection) -> int:
    """End the session of a sequencer at random; answers how many it was."""
    found = database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and application_name = 'berth-relay-sequencing' order by random() limit 1"
    ).fetchall()
    return len(found)


def test_every_committed_event_once_gapless_and_after_its_cause(
    database: psycopg.Connection, database_url: str
) -> None:
    database.execute("create table subjects (id integer primary key, tenant_id uuid, count bigint not null default 0)")
    database.execute("create table drawn (writer integer)")
    for subject in range(1, SUBJECTS + 2):
        tenant = uuid.UUID(int=subject % 7) if subject % 7 else None
        database.execute("insert into subjects (id, tenant_id) values (%s, %s)", (subject, tenant))
    writers = Writers(database_url)
    threads = [threading.Thread(target=writers.write, args=(seed,)) for seed in range(WRITERS)]
    threads.append(threading.Thread(target=writers.stay_open))
    kills = 0
    with sequencers(database_url, 3) as metrics:
        for thread in threads:
            thread.start()

        def enough() -> bool:
            nonlocal kills
            writers.enough.wait(0.05)
            kills += terminate_one(database)
            long_ones = writers.long_transactions
            return len(writers.committed) >= COMMITS_MIN and kills >= KILLS_MIN and long_ones >= LONG_TRANSACTIONS_MIN

        wait_for(enough, "enough was committed, killed and held open", seconds_max=60)
        assert sum(each.sequenced._value.get() > 0 for each in metrics) >= 2, "several sequencers worked"
        writers.enough.set()
        for thread in threads:
            thread.join()
        wait_for(lambda: outbox_is_empty(database), "everything committed is sequenced")
    rows = log_rows(database)
    assert writers.rollbacks > 0
    assert [row["version"] for row in rows] == list(range(1, len(rows) + 1))
    assert head_version(database) == len(rows)
    assert len(rows) == len(writers.committed)
    assert {row["event_id"] for row in rows} == writers.committed
    counts: dict[str, int] = {}
    chains: dict[uuid.UUID, int] = {}
    overtaken = 0
    for before, row in zip([None, *rows], rows, strict=False):
        subject, count = row["payload"]["subject"], row["payload"]["count"]
        assert count == counts.get(subject, 0) + 1, "an effect before its cause"
        counts[subject] = count
        tenant = row["tenant_id"]
        assert row["prev_version"] == (0 if tenant is None else chains.get(tenant, 0))
        if tenant is not None:
            chains[tenant] = row["version"]
        overtaken += before is not None and row["outbox_id"] < before["outbox_id"]
    # The test tests something only if rows did become visible out of the order of their ids.
    assert overtaken > 0


def test_an_open_transaction_does_not_delay_other_events(database: psycopg.Connection, database_url: str) -> None:
    with psycopg.connect(database_url) as slow, sequencers(database_url, 1):
        slow.execute("insert into outbox (event_type, correlation_id, subject, payload)"
                     " values ('slow', uuidv7(), 's', '{}')")  # fmt: skip
        leave_events(database, [{"number": number} for number in range(50)])
        wait_for(lambda: head_version(database) == 50, "the others have their versions")
        slow.commit()
        wait_for(lambda: head_version(database) == 51, "the slow one has its version")
    assert log_rows(database)[-1]["event_type"] == "slow"


def test_extending_the_log_waits_for_no_reader(database: psycopg.Connection, database_url: str) -> None:
    with psycopg.connect(database_url) as reader:
        reader.execute("select count(*) from log")  # its lock stays until its transaction ends
        database.execute("set lock_timeout = '2s'")
        row = database.execute("select log_extend(5000000)").fetchone()
        assert row == (5,)


def test_batch_is_the_lowest_ids_and_no_more_than_asked(database: psycopg.Connection) -> None:
    leave_events(database, [{"number": number} for number in range(25)])
    moved = [database.execute("select log_advance(10)").fetchone() for _ in range(4)]
    assert moved == [(10,), (10,), (5,), (0,)]
    assert [row["payload"]["number"] for row in log_rows(database)] == list(range(25))


def test_a_server_that_is_silent_before_the_first_step_is_abandoned(
    database_url: str, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session stops once it is connected, as on a machine that is paused: libpq waits without a limit."""
    stopping, stopped = threading.Event(), list[int]()
    settings = Settings(
        database_url=as_role(database_url, Role.RELAY), nats_url="nats://none", relay_poll_seconds=0.002
    )
    sequencer = Sequencer(settings, Metrics(), RelayState(), lambda _: None, stopping)
    asks = require_no_restore_now

    def silent(connection: psycopg.Connection) -> None:
        if not stopped:
            os.kill(connection.info.backend_pid, signal.SIGSTOP)
            stopped.append(connection.info.backend_pid)
        asks(connection)

    monkeypatch.setattr(sequencing, "require_no_restore_now", silent)
    thread = threading.Thread(target=sequencer.run)
    thread.start()
    try:
        after_the_limit = time.monotonic() + 10 * ANSWER_SECONDS_MAX
        wait_for(lambda: sequencer.abandon_if_silent(after_the_limit), "the silent session to be abandoned")
        leave_events(database, [1])
        wait_for(lambda: head_version(database) == 1, "another session to sequence")
    finally:
        stopping.set()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        thread.join()
    assert len(stopped) == 1
