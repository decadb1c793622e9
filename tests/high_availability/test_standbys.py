"""What `berth doctor` says of PostgreSQL's standbys."""

from __future__ import annotations

import psycopg
import pytest

from berth.cli.deployment.standby_finding import standby_finding
from berth.cli.deployment.standbys import Standby, judge_standbys

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


def test_one_server_is_named_with_its_timeline(database_url: str) -> None:
    port = psycopg.conninfo.conninfo_to_dict(database_url)["port"]
    found = standby_finding(database_url)
    assert (found.verdict, found.subject) == ("skipped", "standbys")
    assert f"primary 127.0.0.1:{port}, timeline 1" in found.detail
