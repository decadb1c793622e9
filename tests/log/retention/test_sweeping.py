"""The worker truncates and logs what prevents it; metrics and `berth doctor` report the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest
from prometheus_client import REGISTRY

from berth.cli.deployment.database_findings import database_findings
from berth.cli.settings import Settings
from orchestrator.log.commands import register_consumer
from orchestrator.log.store.truncation import Truncation
from orchestrator.operations.execution import Context
from orchestrator.verification.all_checks import run_checks
from tests.allocations.driving import run_with
from tests.log.retention.partitions import append, cut_log, first, number_of, published
from worker.sweepers.log_truncation import truncate_oldest_partition
from worker.sweepers.runner import SweepRunner
from worker.sweepers.sweeper import Sweeper


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """In partitions of ten, with 45 events that NATS has."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        cut_log(connection, 10)
        append(connection, 45)
        published(connection)
        yield connection


def swept(url: str, rounds: int) -> None:
    """Run so many rounds of the runner; the sweeper's interval is an hour."""

    async def sweep(context: Context) -> None:
        truncate = partial(truncate_oldest_partition, context, age_seconds=0, versions_min=1)
        runner = SweepRunner([Sweeper("log", 3_600, truncate, "old partitions")], pause_seconds=0)
        for _ in range(rounds):
            await runner.run_due()

    run_with(url, sweep)


def metric(gauge: str, **labels: str) -> float | None:
    """The value of this process's metric."""
    return REGISTRY.get_sample_value(gauge, labels)


def finding(url: str) -> tuple[str, str]:
    """What `berth doctor` says of the log."""
    (found,) = [one for one in database_findings(url, Settings()) if one.subject == "log"]
    return found.verdict, found.detail


def test_it_goes_on_while_there_is_more_to_drop(database: psycopg.Connection, database_url: str) -> None:
    swept(database_url, 2)
    assert first(database) == 20
    swept(database_url, 5)
    assert first(database) == 40
    assert metric("berth_log_kept_versions") == 6
    assert metric("berth_log_truncation_blocked") == 0
    assert finding(database_url) == ("ok", "versions 40 to 45 are kept")


def test_what_is_held_is_listed_with_its_holder(database: psycopg.Connection, database_url: str) -> None:
    tenant = "0198c1f2-5d10-7b6f-b1a2-3c4d5e6f7081"
    database.execute(
        "insert into retention_policies (scope, policy_id, prevent_truncate, versions_max) values (%s, 'backup', 12, 99)",
        (tenant,),
    )
    database.execute("insert into consumer_positions (consumer, version) values ('billing', 24)")
    swept(database_url, 5)
    assert first(database) == 10
    assert metric("berth_log_truncation_blocked") == 1
    assert metric("berth_log_cursor_lag_versions", kind="policy", name="backup", tenant=tenant) == 34
    assert metric("berth_log_cursor_lag_versions", kind="consumer", name="billing", tenant="") == 21
    verdict, detail = finding(database_url)
    assert verdict == "warning"
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for told in (
        "versions 10 to 45 are kept", f"cannot be truncated since {today}",
        f"retention policy backup of tenant {tenant} needs version 12 and later since {today}", "34 versions",
    ):  # fmt: skip
        assert told in detail, detail
    assert "billing" not in detail, "it needs nothing of what is old enough"
    database.execute("delete from retention_policies")
    swept(database_url, 5)
    assert first(database) == 20
    assert metric("berth_log_cursor_lag_versions", kind="policy", name="backup", tenant=tenant) is None
    assert "consumer billing needs version 25" in finding(database_url)[1]


def test_a_consumer_that_registers_is_waited_for(database: psycopg.Connection, database_url: str) -> None:
    swept(database_url, 1)
    run_with(database_url, lambda context: register_consumer(context, "late"))
    assert number_of(database, "select version from consumer_positions where consumer = 'late'") == 9
    swept(database_url, 3)
    assert first(database) == 10
    database.execute("update consumer_positions set version = 40 where consumer = 'late'")
    run_with(database_url, lambda context: register_consumer(context, "late"))
    assert number_of(database, "select version from consumer_positions where consumer = 'late'") == 40


def test_verify_knows_where_the_log_begins(database: psycopg.Connection, database_url: str) -> None:
    swept(database_url, 3)

    def violations() -> list[str]:
        return [violation for verdict in run_checks(database_url) for violation in verdict.violations]

    assert violations() == []
    database.execute("insert into consumer_positions (consumer, version) values ('billing', 20)")
    assert violations() == ["consumer billing needs the log from version 21 on, and it begins at 30"]
    database.execute("update log_first set version = 20")
    assert "the log is said to begin at version 20, its oldest is 30" in violations()


def test_every_outcome_has_its_name(database: psycopg.Connection) -> None:
    body = database.execute("select prosrc from pg_proc where proname = 'log_truncate'").fetchone()
    assert body is not None
    assert all(f"outcome := '{outcome}'" in str(body[0]) for outcome in Truncation)
