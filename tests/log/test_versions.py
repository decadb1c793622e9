"""`GET /v1/version`: at least as new as every acknowledged write, and which Postgres says so."""

from __future__ import annotations

import threading

import psycopg

from tests.api.calling import Caller, at_once, new_tenant, refusal
from tests.support.log_versions import registered, version
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for


def version_of(api: PublicApi, subject: str) -> int | None:
    """Where the log has the event about a subject; None if it has not."""
    row = api.database.execute("select version from log where subject = %s", (subject,)).fetchone()
    return None if row is None else int(str(row[0]))


def test_every_acknowledged_write_is_in_the_version_that_is_returned_next(api: PublicApi) -> None:
    tenant = new_tenant(api.admin)

    def write_and_ask() -> None:
        for _ in range(5):
            subject = f"resources/{registered(api.admin)}"
            told = version(tenant)["version"]
            at = version_of(api, subject)
            assert at is not None
            assert at <= told

    at_once(*[write_and_ask] * 4)
    versions = [row[0] for row in api.database.execute("select version from log order by version").fetchall()]
    assert versions == list(range(1, len(versions) + 1))


def test_what_another_sequences_at_the_moment_is_waited_for(api: PublicApi) -> None:
    subject = f"resources/{registered(api.admin)}"
    with psycopg.connect(api.database.info.dsn, password=api.database.info.password) as rival:
        rival.execute("select log_advance(100)")
        told: list[int] = []
        asking = threading.Thread(target=lambda: told.append(version(api.admin)["version"]))
        asking.start()
        waiting = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like %s)"
        wait_for(
            lambda: bool((api.database.execute(waiting, ("%log_sequence%",)).fetchone() or [False])[0]),
            "the question to wait for the head",
        )
        rival.commit()
        asking.join()
    at = version_of(api, subject)
    assert at is not None
    assert told[0] >= at


def test_the_leader_is_this_postgres_on_its_timeline(api: PublicApi) -> None:
    row = api.database.execute("select postgres_leader_id() || '-' || epoch from log_head").fetchone()
    assert row is not None
    assert version(api.admin)["leader_id"] == row[0]
    api.database.execute("update log_head set leader_id = '1-00000001'")
    try:
        assert version(api.admin)["leader_id"] == row[0], (
            "the response names the process that answers, not the accepted leader"
        )
    finally:
        api.database.execute("update log_head set leader_id = postgres_leader_id()")


def test_a_key_is_required_and_nothing_else_is_taken(api: PublicApi, stranger: Caller) -> None:
    assert refusal(stranger.http.get("/v1/version")) == (401, "unauthenticated")
    asked = {"authorization": f"Bearer {api.admin.key}"}
    assert refusal(api.admin.http.get("/v1/version?after=1", headers=asked)) == (422, "invalid")
    assert refusal(api.admin.http.post("/v1/version", headers=asked)) == (405, "method_not_allowed")
