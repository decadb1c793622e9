"""What NATS was not given is kept, and a stream that keeps more than the log, or less, is still its copy."""

from __future__ import annotations

import psycopg
import pytest

from berth.cli.deployment.stream_check import check_stream
from outbox_relay.problems import RelayProblem
from outbox_relay.rebuilding import NothingToDo, Order
from tests.log.retention.partitions import cut_log, first, forget_others, number_of, truncate
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import STREAM, require_stream_is_log, stream_end
from tests.support.rebuilding import ask, first_sequence, leave_log, run
from tests.support.waiting import wait_for

QUICK = {"BERTH_RELAY_OBSERVE_SECONDS": "0.05"}
POSITION = "select version from consumer_positions where consumer = 'berth-relay'"


def position(database: psycopg.Connection) -> int:
    """Up to which version the relay says that NATS has everything."""
    return number_of(database, POSITION)


def drop_all(database: psycopg.Connection) -> None:
    """Truncate as far as allowed."""
    while (outcome := truncate(database)) in ("dropped", "busy"):
        continue
    assert outcome in ("kept", "held")


def test_nothing_is_dropped_before_nats_has_it(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    cut_log(database, 10)
    forget_others(database)
    leave_log(database, 45)
    assert truncate(database) == "held"
    relay = start_relay(**QUICK)
    wait_for(lambda: position(database) == 45, "the relay says what NATS has")
    assert stream_end(nats_url) == 45
    drop_all(database)
    assert first(database) == 40
    relay.kill()
    leave_log(database, 20)
    assert truncate(database) == "held"
    start_relay(**QUICK)
    wait_for(lambda: position(database) == 65, "the next relay says it too")
    standing_by = start_relay(**QUICK)
    drop_all(database)
    assert first(database) == 60
    leave_log(database, 1)
    wait_for(lambda: position(database) == 66, "publishing goes on")
    assert standing_by.process.poll() is None


def test_a_stream_that_keeps_more_than_the_log_is_right(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    cut_log(database, 10)
    forget_others(database)
    leave_log(database, 45)
    run(database_url, nats_url)
    assert position(database) == 45
    drop_all(database)
    assert first(database) == 40
    with pytest.raises(NothingToDo, match="from version 1 to 45"):
        run(database_url, nats_url)
    verdict = check_stream(database_url, nats_url)
    assert (verdict.violations, verdict.note) == ([], "versions 40 to 45")
    anew = run(database_url, nats_url, Order(anew=True))
    assert (anew.first_version, anew.published) == (40, 6)
    require_stream_is_log(nats_url, database)
    with pytest.raises(RelayProblem, match="versions 40 to 45, so --from 39 cannot be"):
        run(database_url, nats_url, Order(first_version=39))


@pytest.mark.full
def test_what_a_new_stream_lacks_is_kept_until_it_has_it(
    start_relay: StartRelay, database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    cut_log(database, 10)
    forget_others(database)
    leave_log(database, 45)
    run(database_url, nats_url)
    ask(nats_url, "delete_stream", STREAM)
    # As when the command is killed after its word in Postgres.
    database.execute("update consumer_positions set version = 14")
    drop_all(database)
    assert first(database) == 10
    done = run(database_url, nats_url, Order(first_version=15))
    assert (done.first_version, done.last_version, position(database)) == (15, 45, 45)
    assert first_sequence(nats_url) == 15
    start_relay(**QUICK)
    leave_log(database, 10)
    wait_for(lambda: position(database) == 55, "publishing goes on")
    drop_all(database)
    assert first(database) == 50
