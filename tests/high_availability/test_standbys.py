"""What `berth doctor` says of PostgreSQL's standbys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.standby.finding import standby_finding
from berth.cli.deployment.standby.judgement import Standby, judge_standbys
from berth.local.servers import LocalPostgres
from tests.allocations.driving import rows_of
from tests.support.waiting import wait_for

B = Standby("b", "streaming", "quorum", 0)
C = Standby("c", "streaming", "quorum", 2048)


@pytest.mark.parametrize(
    ("names", "standbys", "verdict", "words"),
    [
        ("", [], "skipped", "one server"),
        ("", [Standby("b", "streaming", "async", 0)], "warning", "a failover may lose some: b async, 0 bytes behind"),
        ("ANY 1 (b,c)", [], "bad", "none is connected"),
        ("ANY 1 (b,c)", [Standby("b", "catchup", "async", 9)], "bad", "no standby confirms them; b async"),
        ("ANY 1 (b,c)", [B], "warning", "the loss of one more server stops writes"),
        ("ANY 1 (b,c)", [B, C], "ok", "2 confirm commits: b quorum, 0 bytes behind; c quorum, 2,048 bytes behind"),
        ("ANY 1 (b,c)", [Standby(None, None, None, None)], "skipped", "pg_monitor"),
    ],
)
def test_the_judgement(names: str, standbys: list[Standby], verdict: str, words: str) -> None:
    found = judge_standbys("primary x:1, timeline 1", names, standbys)
    assert found.verdict == verdict
    assert words in found.detail
    assert found.detail.startswith("primary x:1, timeline 1; ")


def test_the_receiver_of_a_backup_is_no_standby(
    postgres_server: LocalPostgres, database_url: str, tmp_path: Path
) -> None:
    url = postgres_server.make_backup_role(postgres_server.password)
    command = [LocalPostgres.program("pg_receivewal"), f"--dbname={url}", f"--directory={tmp_path}", "--no-loop"]
    receiver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: rows_of(database_url, "select from pg_stat_replication"), "the receiver is connected")
        assert standby_finding(database_url).verdict == "skipped"
    finally:
        receiver.terminate()
        receiver.wait()


def test_one_server_is_named_with_its_timeline(database_url: str) -> None:
    port = psycopg.conninfo.conninfo_to_dict(database_url)["port"]
    found = standby_finding(database_url)
    assert (found.verdict, found.subject) == ("skipped", "standbys")
    assert f"primary 127.0.0.1:{port}, timeline 1" in found.detail
