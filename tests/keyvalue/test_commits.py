"""Commits, one at a time: preconditions, effects, responses (reference: weaseldb-api)."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.api.calling import new_tenant, problem
from tests.keyvalue.committing import (
    Keys,
    b64,
    clear,
    delete,
    new_request_id,
    put,
    services_of,
    unchanged,
    unchanged_range,
)
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for
from worker.sweepers.retention import sweep_deleted_keys


def test_a_commit_is_answered_as_specified_and_its_version_is_its_events(api: PublicApi, keys: Keys) -> None:
    own = new_request_id()
    told = keys.commit([put(b"a", b"1"), put(b"b", b"")], request_id=own)
    leader = keys.send("GET", "/version").json()["leader_id"]
    rows = api.database.execute(
        "select version, event_type, tenant_id::text, operation_key, payload -> 'operations' from log where operation_key = %s",
        (own,),
    ).fetchall()
    assert rows == [
        (told["version"], "transaction", keys.caller.tenant_id, own, [put(b"a", b"1"), put(b"b", b"")])
    ]  # fmt: skip
    assert told == {
        "status": "committed", "conflicts": [], "version": told["version"], "leader_id": leader, "request_id": own,
    }  # fmt: skip
    read = keys.find(b"a").json()
    assert read == {
        "key": b64(b"a"), "value": b64(b"1"), "version": told["version"], "read_version": read["read_version"],
        "leader_id": leader,
    }  # fmt: skip
    assert read["read_version"] >= told["version"]
    assert keys.value(b"b") == b""
    assert problem(keys.find(b"c"), 404, "not_found")["read_version"] >= told["version"]


def test_operations_are_applied_in_order(keys: Keys) -> None:
    keys.committed([put(b"k1", b"old"), put(b"k2", b"old"), put(b"k3", b"old")])
    keys.committed(
        [
            put(b"k1", b"lost"), put(b"k4", b"lost"), clear(b"k1", b"k9"), put(b"k2", b"new"), put(b"k2", b"newer"),
            put(b"k5", b"gone"), delete(b"k5"), delete(b"never"),
        ]
    )  # fmt: skip
    assert keys.every()[0] == {b"k2": b"newer"}


def test_a_point_read_sees_writes_and_deletes_of_its_key_only(keys: Keys) -> None:
    first = keys.committed([put(b"k", b"1"), put(b"other", b"1")])
    keys.committed([put(b"other", b"2")], [unchanged(b"k", first)])
    second = keys.committed([put(b"k", b"1")])
    told = keys.commit([put(b"x", b"x")], [unchanged(b"k", first), unchanged(b"x", first)])
    assert told["status"] == "not_committed"
    assert told["conflicts"] == [unchanged(b"k", first)]
    assert told["version"] > second
    assert keys.value(b"x") is None
    # The version from the refusal is a valid precondition; a missing key is a read like any other.
    third = keys.committed([delete(b"k")], [unchanged(b"k", told["version"]), unchanged(b"x", told["version"])])
    assert keys.commit([], [unchanged(b"k", third - 1)])["status"] == "not_committed"
    keys.committed([], [unchanged(b"k", third)])


def test_a_range_read_sees_what_comes_and_goes_inside_it(keys: Keys) -> None:
    first = keys.committed([put(b"b", b"1"), put(b"d", b"1")])
    whole = [unchanged_range(b"b", b"d")]
    keys.committed([put(b"d", b"2"), put(b"a", b"1")], whole, read_version=first)
    for changing in ([put(b"c", b"1")], [delete(b"b")], [clear(b"b", b"c\xff")], [put(b"c\0", b"")]):
        before = keys.committed([put(b"b", b"1"), put(b"c", b"0")])
        keys.committed(changing)
        told = keys.commit([put(b"z", b"z")], whole, read_version=before)
        assert told["status"] == "not_committed", changing
        assert told["conflicts"] == [unchanged_range(b"b", b"d", before)]
        keys.committed([], whole, read_version=told["version"])
    # What deletes nothing changes nothing.
    now = keys.version()
    keys.committed([delete(b"bb"), clear(b"c\x01", b"d")])
    keys.committed([], whole, read_version=now)


def test_versions_of_one_commit_need_not_be_the_same(keys: Keys) -> None:
    first = keys.committed([put(b"a", b"1")])
    second = keys.committed([put(b"b", b"1")])
    keys.committed([], [unchanged(b"a", first), unchanged(b"b", second)])
    assert keys.commit([], [unchanged(b"a", first), unchanged(b"b", first)])["conflicts"] == [unchanged(b"b", first)]


def test_create_if_absent_reads_at_version_zero(keys: Keys) -> None:
    made = keys.commit([put(b"k", b"mine")], [unchanged(b"k", 0)])
    again = keys.commit([put(b"k", b"yours")], [unchanged(b"k", 0)])
    assert (made["status"], again["status"]) == ("committed", "not_committed")
    assert keys.value(b"k") == b"mine"


def test_another_leader_commits_nothing(keys: Keys) -> None:
    version = keys.committed([put(b"k", b"1")])
    told = keys.commit([put(b"k", b"2")], leader_id="another")
    assert (told["status"], told["conflicts"]) == ("not_committed", [])
    assert told["version"] > version
    keys.committed([put(b"k", b"2")], leader_id=told["leader_id"])


def test_versions_of_an_older_leader_satisfy_nothing(api: PublicApi, keys: Keys) -> None:
    version = keys.committed([put(b"k", b"1")])
    # As an accepted failover leaves it: another leader wrote what clients have read.
    api.database.execute("update log set leader_id = 'the one before' where version <= %s", (version,))
    told = keys.commit([put(b"k", b"2")], [unchanged(b"never", version)])
    assert told["status"] == "not_committed"
    keys.committed([put(b"k", b"2")], [unchanged(b"k", told["version"])])
    api.database.execute("update log_head set leader_id = 'not accepted'")
    try:
        refused = problem(keys.try_commit([put(b"k", b"3")]), 503, "leader_unaccepted")
    finally:
        api.database.execute("update log_head set leader_id = postgres_leader_id()")
    assert refused["outcome"] == "not_done"
    assert keys.value(b"k") == b"2"


def test_versions_and_leaders_of_an_earlier_epoch_satisfy_nothing(api: PublicApi, keys: Keys) -> None:
    """As after a data directory that was copied is accepted: it has system, timeline and versions of its origin."""
    told = keys.commit([put(b"k", b"1")])
    keys.committed([], [unchanged(b"k", told["version"])], leader_id=told["leader_id"])
    api.database.execute("select log_open_epoch()")
    assert keys.commit([put(b"k", b"2")], leader_id=told["leader_id"])["status"] == "not_committed"
    refused = keys.commit([put(b"k", b"2")], [unchanged(b"k", told["version"])])
    assert refused["conflicts"] == [unchanged(b"k", told["version"])]
    assert keys.value(b"k") == b"1"
    keys.committed([put(b"k", b"2")], [unchanged(b"k", refused["version"])], leader_id=refused["leader_id"])


def test_versions_and_leaders_of_before_there_were_epochs_are_valid(api: PublicApi, keys: Keys) -> None:
    told = keys.commit([put(b"k", b"1")])
    earlier = told["leader_id"][:-9]
    api.database.execute("update log set leader_id = %s where version <= %s", (earlier, told["version"]))
    keys.committed([put(b"k", b"2")], [unchanged(b"k", told["version"])], leader_id=earlier)
    assert keys.value(b"k") == b"2"


def test_a_request_id_is_an_operation_key(api: PublicApi, keys: Keys) -> None:
    own = new_request_id()
    first = keys.try_commit([put(b"k", b"1")], request_id=own)
    keys.committed([put(b"k", b"2")])
    again = keys.try_commit([put(b"k", b"1")], request_id=own)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert keys.value(b"k") == b"2"
    problem(keys.try_commit([put(b"k", b"3")], request_id=own), 422, "operation_conflict")
    refused = new_request_id()
    told = keys.commit([], [unchanged(b"k", first.json()["version"])], request_id=refused)
    assert told["status"] == "not_committed"
    assert keys.commit([], [unchanged(b"k", first.json()["version"])], request_id=refused) == told
    stored = keys.caller.get(f"/operations/{own}")
    assert stored["result"]["status"] == "committed"
    event = api.database.execute(
        "select event_type, payload ->> 'code' from log where operation_key = %s", (refused,)
    ).fetchall()
    assert event == [("operation.refused", "not_committed")]


def test_a_request_without_a_key_gets_the_drawn_one(keys: Keys) -> None:
    drawn = keys.commit([put(b"k", b"1")])
    assert keys.status(drawn["request_id"])["version"] == drawn["version"]
    headers = {"authorization": f"Bearer {keys.caller.key}", "idempotency-key": "mine"}
    sent = keys.caller.http.post("/v1/commit", json={}, headers=headers)
    assert sent.json()["request_id"] == "mine"


def test_status_returns_its_outcome_and_fences_it(api: PublicApi, keys: Keys) -> None:
    own, refused, never = new_request_id(), new_request_id(), new_request_id()
    told = keys.commit([put(b"k", b"1")], request_id=own)
    assert keys.status(own) == {
        "status": "committed", "version": told["version"], "leader_id": told["leader_id"]
    }  # fmt: skip
    keys.committed([put(b"k", b"2")])
    keys.commit([], [unchanged(b"k", told["version"])], request_id=refused)
    nothing = {"status": "id_not_found", "version": None, "leader_id": None}
    assert keys.status(refused) == nothing
    assert keys.status(never) == nothing
    # It was still on its way; now it is too late.
    problem(keys.try_commit([put(b"k", b"late")], request_id=never), 409, "operation_fenced")
    assert keys.value(b"k") == b"2"
    # The record of the operation goes, the log stays.
    api.database.execute("delete from operations where key = %s", (own,))
    assert keys.status(own)["version"] == told["version"]


def test_what_the_log_no_longer_has_is_reported_as_such(api: PublicApi, keys: Keys) -> None:
    own = new_request_id()
    version = keys.committed([put(b"k", b"1")], request_id=own)
    newer = keys.committed([delete(b"k")])
    api.database.execute("delete from operations where key = %s", (own,))
    first = api.database.execute("select version from log_first").fetchone()
    assert first is not None
    api.database.execute("create temp table kept as select * from log")
    try:
        api.database.execute("delete from log where version <= %s", (newer,))
        api.database.execute("update log_first set version = %s", (newer + 1,))
        assert keys.status(own, version - 1)["status"] == "log_truncated"
        assert keys.status(new_request_id(), newer)["status"] == "id_not_found"
        for old in (0, version, newer):
            assert keys.commit([], [unchanged(b"untouched", old)])["status"] == "not_committed"
        read = problem(keys.find(b"k"), 404, "not_found")["read_version"]
        keys.committed([], [unchanged(b"k", read)])
        kept = "select count(*) from kv_keys where namespace = %s"
        assert api.database.execute(kept, (keys.caller.tenant_id,)).fetchone() == (1,)
        http = keys.caller.http
        assert isinstance(http, TestClient)
        assert http.portal is not None
        http.portal.call(sweep_deleted_keys, services_of(keys).context.for_platform())
        assert api.database.execute(kept, (keys.caller.tenant_id,)).fetchone() == (0,)
        assert counted(api, keys) == (0, 0)
    finally:
        missing = (
            "insert into log select * from kept k where not exists (select from log l where l.version = k.version)"
        )
        api.database.execute(missing)
        api.database.execute("update log_first set version = %s", first)
        api.database.execute("drop table kept")


def counted(api: PublicApi, keys: Keys) -> tuple[object, ...]:
    """The namespace's counters, which must be what they count."""
    row = api.database.execute(
        """select n.keys, n.bytes, (select count(*) from kv_keys k where k.namespace = n.id),
           (select coalesce(sum(octet_length(k.key) + coalesce(octet_length(k.value), 0)), 0) from kv_keys k
            where k.namespace = n.id)
           from kv_namespaces n where n.id = %s""",
        (keys.caller.tenant_id,),
    ).fetchone()
    assert row is not None
    assert row[:2] == row[2:]
    return row[:2]


def test_a_commit_is_judged_after_the_one_before_it_has_ended(api: PublicApi, keys: Keys) -> None:
    version = keys.committed([put(b"k", b"1")])
    info = api.database.info
    item = {
        "scope": keys.caller.tenant_id, "key": new_request_id(), "fingerprint": "ab" * 32, "request_id": None,
        "retention_seconds": 60, "correlation_id": keys.caller.tenant_id, "namespace": keys.caller.tenant_id,
        "leader_id": None, "version_max": None, "preconditions": [], "conflicts": [], "ranges": [],
        "puts": [[b64(b"k"), b64(b"rival")]], "put_bytes": 6, "payload": {"operations": [put(b"k", b"rival")]},
        "keys_max": 10, "bytes_max": 1_000, "alone": False,
    }  # fmt: skip
    told: list[dict[str, Any]] = []
    with psycopg.connect(info.dsn, password=info.password) as rival:
        rival.execute("select kv_commit(%s)", (Jsonb([item]),))
        second = threading.Thread(
            target=lambda: told.append(keys.commit([put(b"k", b"2")], [unchanged(b"k", version)]))
        )
        second.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
        wait_for(lambda: api.database.execute(waiting, ("%from kv_commit%",)).fetchone() == (1,), "the second to wait")
        rival.commit()
        second.join()
    assert told[0]["status"] == "not_committed"
    assert keys.value(b"k") == b"rival"


def test_what_is_kept_is_counted(api: PublicApi, keys: Keys) -> None:
    for operations in (
        [put(b"a", b"12345"), put(b"b", b"")], [put(b"a", b"1"), delete(b"b"), put(b"c", b"123")],
        [clear(b"a", b"b"), put(b"b", b"1234")], [delete(b"a"), put(b"a", b"1"), clear(b"b", b"z")],
    ):  # fmt: skip
        keys.committed(operations)
        counted(api, keys)
    assert counted(api, keys) == (3, 4)


def test_no_tenant_sees_or_changes_the_keys_of_another(api: PublicApi, keys: Keys) -> None:
    own = new_request_id()
    version = keys.committed([put(b"secret", b"1")], request_id=own)
    others = [Keys(new_tenant(api.admin)), Keys(api.admin)]
    for other in others:
        assert other.value(b"secret") is None
        assert b"secret" not in other.every()[0]
        assert other.status(own)["status"] == "id_not_found"
        other.committed([clear(b"", b"\xff"), put(b"secret", b"2")], [unchanged(b"secret", version)])
        assert other.commit([], [unchanged(b"secret", version)], request_id=own + "x")["status"] == "not_committed"
    assert keys.value(b"secret") == b"1"
    keys.committed([], [unchanged_range(b"", b"\xff", version)])
    # Operators share one namespace.
    assert others[1].value(b"secret") == b"2"
    rows = api.database.execute(
        "select tenant_id, payload ? 'principal_id' from log where event_type = 'transaction' and tenant_id is null"
    ).fetchall()
    assert rows == [(None, True)]


def test_ranges_are_read_in_the_order_of_bytes_page_by_page(keys: Keys) -> None:
    names = [b"\0", b"\0\0", b"a", b"a\0", b"ab", b"b", b"\x7f", b"\x80", b"\xff\xff"]
    keys.committed([put(name, name * 2) for name in reversed(names)])
    found, version = keys.every(limit=2)
    assert list(found) == names
    assert found[b"ab"] == b"abab"
    page = keys.range(begin="YQ", end="Yg==")
    assert [item["key"] for item in page["items"]] == [b64(b"a"), b64(b"a\0"), b64(b"ab")]
    assert page["next_cursor"] is None
    keys.committed([], [unchanged_range(b"", b"\xff\xff\xff", version)])


def test_pages_are_bounded_in_bytes(keys: Keys) -> None:
    value = b"v" * 60_000
    for start in range(0, 24, 2):
        keys.committed([put(b"k%02d" % n, value) for n in range(start, start + 2)])
    page = keys.range(limit=500)
    assert 17 <= len(page["items"]) < 24
    assert len(keys.every()[0]) == 24


@pytest.mark.parametrize("many", [1, 7])
def test_reads_can_ask_for_a_version(keys: Keys, many: int) -> None:
    version = 0
    for n in range(many):
        version = keys.committed([put(b"k", b"%d" % n)])
    answer = keys.send("GET", "/kv", min_version=version)
    assert answer.status_code == 200
    assert answer.json()["read_version"] >= version
