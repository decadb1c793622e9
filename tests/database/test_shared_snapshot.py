"""The connections of `berth verify` see one snapshot; when one fails, what the others run is cancelled."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from orchestrator.verification import CHECKS, all_checks, run_checks
from orchestrator.verification.verdict import Bounds, Connection, Verdict

REGION = "insert into regions (name, display_name) values (%s, %s)"


def test_what_commits_between_two_connections_is_seen_by_none(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.connect
    made: list[str] = []

    def commit_first(url: str) -> Any:
        with connect(url) as rival:
            made.append(f"region-{len(made)}")
            rival.execute(REGION, (made[-1], made[-1]))
        return connect(url)

    monkeypatch.setattr(psycopg, "connect", commit_first)
    with ExitStack() as held:
        connections = all_checks._connect(database_url, held)
        seen = [connection.execute("select name from regions").fetchall() for connection in connections]
    assert len(made) == all_checks.CONNECTIONS > 1
    assert seen == [[("region-0",)]] * all_checks.CONNECTIONS


def test_verdicts_come_in_the_order_of_the_checks(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        alone = [check(connection, Bounds()).promise for check in CHECKS]
    assert [verdict.promise for verdict in run_checks(database_url)] == alone


def test_a_failed_check_ends_the_others(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_for_a_minute(connection: Connection, _: Bounds) -> Verdict:
        connection.execute("select pg_sleep(60)")
        return Verdict("slow", "takes a minute")

    def check_and_fail(connection: Connection, _: Bounds) -> Verdict:
        connection.execute("select 1 / 0")
        return Verdict("failed", "fails")

    monkeypatch.setattr(all_checks, "CHECKS", (check_for_a_minute, check_and_fail, check_for_a_minute))
    began = time.monotonic()
    with pytest.raises(psycopg.errors.DivisionByZero):
        run_checks(database_url)
    assert time.monotonic() - began < 30
