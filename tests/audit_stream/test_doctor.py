"""`berth doctor` reports streams of the audit that fail or are late, and four eyes without a second operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from migrations.roles import Role
from orchestrator.tenants.key_secrets import Secret
from tests.databases import as_role

INSERT_KEY = """
insert into api_keys (role, access_role, name, prefix, secret_hash, owner, break_glass)
values ('admin', %s, 'key', 'p', %s, %s, %s) returning id
"""
INSERT_ROW = """
insert into audit (principal_kind, principal_id, action, subject) values ('system', 'test', 'thing.turn', 'things/1')
"""
WITH_FOUR_EYES = {"BERTH_FOUR_EYES": "true"}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No stack in the directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def run(url: str, line: str, **settings: str) -> Any:
    """What a command prints, as the operator's role."""
    environment = {"BERTH_DATABASE_URL": as_role(url, Role.OPERATOR), **settings}
    return CliRunner().invoke(app, [*line.split(), "--output", "json"], env=environment)


def finding(url: str, subject: str, **settings: str) -> tuple[str, str]:
    """Verdict and detail of one subject."""
    found = json.loads(run(url, "doctor", **settings).stdout)["findings"]
    (one,) = [(one["verdict"], one["detail"]) for one in found if one["subject"] == subject]
    return one


def add_key(
    database: psycopg.Connection[Any], owner: str | None = None, role: str = "admin", *, break_glass: bool = False
) -> object:
    row = database.execute(INSERT_KEY, (role, Secret().stored.sha256, owner, break_glass)).fetchone()
    assert row is not None
    return row[0]


def test_four_eyes_need_a_second_operator_or_a_break_glass_key(
    database_url: str, database: psycopg.Connection[Any]
) -> None:
    def verdict() -> str:
        return finding(database_url, "four eyes", **WITH_FOUR_EYES)[0]

    assert finding(database_url, "four eyes")[0] == "skipped"
    assert verdict() == "warning", "no operator at all"
    first = add_key(database, "ann")
    add_key(database, "Ann")
    add_key(database, "ben", "fleet")
    found, detail = finding(database_url, "four eyes", **WITH_FOUR_EYES)
    assert found == "warning"
    assert detail.startswith(
        "1 operators with a live admin key, 0 break-glass keys: no second operator can approve; make"
    )
    emergency = add_key(database, break_glass=True)
    assert verdict() == "ok"
    database.execute("update api_keys set revoked_at = clock_timestamp() where id = %s", (emergency,))
    assert verdict() == "warning"
    second = add_key(database, "ben")
    assert verdict() == "ok"
    for ended in ("expires_at = clock_timestamp()", "replaced_by = uuidv7()", "revoked_at = clock_timestamp()"):
        database.execute(f"update api_keys set {ended} where id = %s".encode(), (second,))
        assert verdict() == "warning", ended
        database.execute("update api_keys set expires_at = null, replaced_by = null where id = %s", (second,))
    database.execute("update api_keys set owner = null where id = any (%s)", ([first],))
    assert verdict() == "ok", "keys without an owner are different people"


def test_streams_of_the_audit(database_url: str, database: psycopg.Connection[Any]) -> None:
    assert finding(database_url, "audit streams")[0] == "skipped"
    database.execute(INSERT_ROW)
    database.execute("select audit_advance(10)")
    database.execute("select audit_stream_begin('nats')")
    assert finding(database_url, "audit to nats")[0] == "ok"
    with database.transaction():
        database.execute("set local session_replication_role = replica")
        database.execute("update audit_chain set recorded_at = recorded_at - interval '10 minutes'")
    verdict, detail = finding(database_url, "audit to nats")
    assert verdict == "bad"
    assert detail.startswith("1 rows wait, the oldest for 60")
    assert "; is `python -m worker --audit-stream` running?; until they are sent, or" in detail
    database.execute("update audit_streams set failing_since = clock_timestamp(), last_error = 'NATS is away'")
    assert finding(database_url, "audit to nats")[0] == "warning"
    database.execute("update audit_streams set failing_since = clock_timestamp() - interval '2 minutes'")
    verdict, detail = finding(database_url, "audit to nats")
    assert (verdict, "; NATS is away; until" in detail) == ("bad", True)
    database.execute("update audit_streams set failing_since = null, last_error = null, sequence = 1")
    assert finding(database_url, "audit to nats") == ("ok", "every row up to 1 is sent, 0 wait")


def test_a_stream_is_listed_and_removed_on_the_record(database_url: str, database: psycopg.Connection[Any]) -> None:
    assert json.loads(run(database_url, "audit-stream list").stdout) == {"items": []}
    database.execute("select audit_stream_begin('syslog')")
    (listed,) = json.loads(run(database_url, "audit-stream list").stdout)["items"]
    assert (listed["name"], listed["sequence"], listed["sending"]) == ("syslog", 0, False)
    assert json.loads(run(database_url, "audit-stream remove syslog").stdout) == {"removed": "syslog"}
    assert database.execute("select count(*) from audit_streams").fetchone() == (0,)
    recorded = "select subject, detail from audit where action = 'audit_stream.remove'"
    assert database.execute(recorded).fetchall() == [("audit-streams/syslog", {"sequence": 0})]
    refused = run(database_url, "audit-stream remove syslog")
    assert (refused.exit_code, "there is no stream syslog" in refused.output) == (1, True)
    assert run(database_url, "audit-stream remove other").exit_code == 2
    assert database.execute(recorded).rowcount == 1
