"""A webhook is changed while a dispatcher reads the log for it.

PostgreSQL 18 crashed here, and with it every session: a statement that finds a newer version of a row that it locks prepares its
plan once more, and what chooses partitions of the log then points into memory that was given back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.log.retention.partitions import cut_log
from tests.support.waiting import wait_for
from tests.webhooks.receivers import Receiver
from tests.webhooks.stage import WebhookStage

ROUNDS = 30
WAITING = "select from pg_locks where locktype = 'advisory' and not granted"
LOCK = 77


@pytest.fixture
def held_back(stage: WebhookStage) -> Iterator[psycopg.Connection]:
    """A session that holds back, with `LOCK`, each statement that asks for the leader, once it has its snapshot."""
    original = stage.one("select pg_get_functiondef('postgres_leader_id'::regproc)")
    held = "begin perform pg_advisory_xact_lock_shared({}); return {}; end"
    body = sql.SQL(held).format(LOCK, stage.one("select postgres_leader_id()")).as_string()
    create = "create or replace function postgres_leader_id() returns text language plpgsql volatile as {}"
    stage.database.execute(sql.SQL(create).format(body))
    info = stage.database.info
    with psycopg.connect(info.dsn, password=info.password, autocommit=True) as session:
        yield session
    stage.database.execute(original)


def test_its_events_are_sent_and_the_database_goes_on(
    stage: WebhookStage, receiver: Receiver, held_back: psycopg.Connection
) -> None:
    webhooks = [stage.webhook(stage.admin, receiver, types=["node.*"]) for _ in range(5)]
    stage.webhook(stage.tenant(), receiver, types=["node.*"])
    cut_log(stage.database, 2)
    stage.dispatch()
    sent = len(receiver.received)
    for _ in range(ROUNDS):
        stage.append(None, 3)
        held_back.execute("select pg_advisory_lock(%s)", (LOCK,))
        dispatching = threading.Thread(target=stage.dispatch)
        dispatching.start()
        wait_for(lambda: held_back.execute(WAITING).fetchone() is not None, "the dispatcher is held back")
        held_back.execute("update webhooks set description = 'changed' where id = %s", (webhooks[0]["id"],))
        held_back.execute("select pg_advisory_unlock(%s)", (LOCK,))
        dispatching.join()
        sent += 3 * len(webhooks)
        assert len(receiver.received) == sent
