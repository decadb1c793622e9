"""Whole partitions are dropped, oldest first, when they are old enough and unneeded; no session waits long for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from orchestrator.verification import all_checks
from orchestrator.verification.p3_one_order import check_one_order
from orchestrator.verification.verdict import Bounds, Connection, Verdict
from tests.log.retention.partitions import append, cut_log, first, number_of, published, truncate

PARTITION = 10


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """This test's own, in partitions of ten versions; the relay is done with what `published` says."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        cut_log(connection, PARTITION)
        yield connection


def blocked(database: psycopg.Connection) -> tuple[bool, int | None]:
    """Whether a consumer keeps what is old enough, and below which version."""
    row = database.execute("select blocked_since is not null, blocked_below from log_truncation").fetchone()
    assert row is not None
    return row


def test_nothing_goes_that_is_young_or_among_the_newest_or_at_the_head(database: psycopg.Connection) -> None:
    append(database, 25, age_seconds=3_600)
    published(database)
    assert truncate(database, age_seconds=7_200) == "kept"
    assert truncate(database, age_seconds=1_800, versions_min=17) == "kept"
    assert (truncate(database, age_seconds=1_800, versions_min=16), first(database)) == ("dropped", 10)
    assert (truncate(database, age_seconds=1_800), first(database)) == ("dropped", 20)
    assert truncate(database) == "kept", "the head's partition stays"
    append(database, 5, age_seconds=3_600)
    published(database)
    assert (truncate(database), first(database)) == ("dropped", 30), "the head is the first of the next one"


def test_one_young_event_in_it_keeps_a_partition(database: psycopg.Connection) -> None:
    append(database, 8, age_seconds=3_600)
    append(database, 1)
    append(database, 16, age_seconds=3_600)
    published(database)
    assert truncate(database, age_seconds=1_800) == "kept"
    database.execute("update log set occurred_at = occurred_at - interval '1 hour' where version = 9")
    assert truncate(database, age_seconds=1_800) == "dropped"


@pytest.mark.parametrize(
    ("needs", "lets_go"),
    [
        (
            "insert into retention_policies (scope, policy_id, prevent_truncate) values (uuidv7(), 'mine', 9)",
            "update retention_policies set prevent_truncate = 10",
        ),
        (
            "insert into consumer_positions (consumer, version) values ('billing', 8)",
            "update consumer_positions set version = 9 where consumer = 'billing'",
        ),
        (
            """insert into dead_letters (consumer, version, reason, detail, excerpt, tries, state, first_at)
               values ('berth-worker', 9, 'stub', '', '', 1, 'dead', clock_timestamp())""",
            "update dead_letters set state = 'discarded', settled_at = clock_timestamp()",
        ),
        (
            "update consumer_positions set version = 8 where consumer = 'berth-relay'",
            "update consumer_positions set version = 9 where consumer = 'berth-relay'",
        ),
    ],
    ids=["policy", "consumer", "dead letter", "relay"],
)
def test_what_needs_it_keeps_it_and_is_named(database: psycopg.Connection, needs: str, lets_go: str) -> None:
    append(database, 25)
    published(database)
    database.execute(needs.encode())
    assert truncate(database) == "held"
    assert (first(database), blocked(database)) == (1, (True, 10))
    since = database.execute("select blocked_since from log_truncation").fetchone()
    assert truncate(database) == "held"
    assert database.execute("select blocked_since from log_truncation").fetchone() == since, "since the first look"
    assert number_of(database, "select count(*) from log_cursors where needs_from = 9") == 1
    database.execute(lets_go.encode())
    assert truncate(database) == "dropped"
    assert blocked(database) == (False, None)


def test_a_policy_with_a_bound_holds_up_to_it(database: psycopg.Connection) -> None:
    append(database, 25)
    published(database)
    database.execute(
        "insert into retention_policies (scope, policy_id, prevent_truncate, versions_max) values (uuidv7(), 'p', 5, 16)"
    )
    assert (truncate(database), first(database)) == ("held", 1), "25 - 16 is in the first partition"
    append(database, 1)
    assert (truncate(database), first(database)) == ("dropped", 10)
    assert (truncate(database), first(database)) == ("held", 10)


def test_a_new_consumer_begins_where_the_log_does(database: psycopg.Connection) -> None:
    append(database, 35)
    published(database)
    assert truncate(database) == "dropped"
    register = (
        "insert into consumer_positions (consumer, version) "
        "select 'late', f.version - 1 from log_first f for no key update on conflict do nothing"
    )
    database.execute(register)
    assert number_of(database, "select version from consumer_positions where consumer = 'late'") == 9
    assert truncate(database) == "held"


def test_no_request_waits_long_for_a_drop_that_has_to_wait(database: psycopg.Connection, database_url: str) -> None:
    append(database, 25)
    published(database)
    with psycopg.connect(database_url) as reader:
        reader.execute("select count(*) from log where version < 5")
        assert truncate(database) == "busy"
        assert append(database, 1) == 26
        assert first(database) == 1
        assert number_of(database, "select count(*) from log") == 26
    with psycopg.connect(database_url) as coming:
        coming.execute("select version from log_first for no key update")
        assert truncate(database) == "busy", "a consumer is registering its position"
    assert truncate(database) == "dropped"


def test_several_drop_each_partition_once(database: psycopg.Connection, database_url: str) -> None:
    append(database, 205)
    published(database)

    def sweep() -> list[str]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            return list(iter(lambda: truncate(connection), "kept"))

    with ThreadPoolExecutor(3) as pool:
        outcomes = [outcome for task in [pool.submit(sweep) for _ in range(3)] for outcome in task.result()]
    assert first(database) == 200
    assert outcomes.count("dropped") == 20
    assert set(outcomes) <= {"dropped", "busy", "elsewhere"}


def test_a_reader_sees_a_partition_whole_or_knows_that_it_is_gone(
    database: psycopg.Connection, database_url: str
) -> None:
    """In one statement, as the feed reads: prepared plans and partitions that vanish beneath them included."""
    append(database, 400)
    published(database)

    def drop_all() -> None:
        with psycopg.connect(database_url, autocommit=True) as sweeper:
            while first(sweeper) < 300:
                truncate(sweeper, versions_min=100)

    seen: list[bool] = []
    cursor = PARTITION // 2
    with (
        psycopg.connect(database_url, autocommit=True, prepare_threshold=0) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        dropping = pool.submit(drop_all)
        while not dropping.done():
            row = reader.execute(
                "select f.version, min(l.version), count(l.version) from log_first f left join log l "
                "on l.version > %s and l.version <= %s group by f.version",
                (cursor, cursor + 30),
            ).fetchone()
            assert row is not None
            told_first, lowest, number = row
            is_kept = told_first <= cursor + 1
            if is_kept:
                assert (lowest, number) == (cursor + 1, 30)
            else:
                assert lowest is None or lowest >= told_first
                cursor = told_first + PARTITION // 2
            seen.append(is_kept)
        dropping.result()
    assert set(seen) == {True, False}


def test_a_verification_sees_the_log_of_its_snapshot(
    database: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(database, 35)
    published(database)
    outcomes = []

    def truncate_first(connection: Connection, bounds: Bounds) -> Verdict:
        outcomes.append(truncate(database))
        return check_one_order(connection, bounds)

    monkeypatch.setattr(all_checks, "CHECKS", (truncate_first,))
    (verdict,) = all_checks.run_checks(database_url)
    assert (verdict.violations, outcomes) == ([], ["busy"])
    assert truncate(database) == "dropped", "it was only delayed"
