"""While a restore is open no process serves: not one that ran before, not one that is started again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

import migrations
from berth.cli.deployment.restore import gate
from berth.cli.endings import Refused
from berth.process.restore_gate import RestoreOpen, require_no_restore_now
from migrations.roles import Role
from orchestrator.database.direct_connection import connect_directly
from orchestrator.database.transactions import connect_database
from orchestrator.problems import RestoreInProgress
from tests.api.calling import Caller, fresh, insert_admin_key, problem
from tests.api.processes import public_process, started_public_process
from tests.berth.commands import assert_one_sentence, berth
from tests.databases import as_role
from tests.event_payloads import unpromised
from tests.outbox_relay.relays import head_version, leave_events, stream_end
from tests.restores.conftest import NO_NATS, StartRelay
from tests.support.waiting import wait_for
from worker.health import Health
from worker.startup import await_database


@pytest.mark.full
def test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing(
    database_url: str, database: psycopg.Connection, tmp_path: Path
) -> None:
    key = insert_admin_key(database_url)

    def require_refused(admin: Caller) -> None:
        asked: list[Callable[[], httpx.Response]] = [
            lambda: admin.http.get("/ok"),
            lambda: admin.call("GET", "/admin/tenants"),
            lambda: admin.call("POST", "/admin/tenants", {"name": fresh("tenant")}),
            lambda: admin.http.get("/v1/version", headers={"authorization": f"Bearer {key}"}),
        ]
        for ask in asked:
            # The loss of a connection that was made before is noticed first.
            answer = ask()
            while answer.json()["code"] == "database_unavailable":
                answer = ask()
            document = problem(answer, 503, "restore_in_progress")
            assert document["outcome"] == "not_done"
            assert str(restore.epoch) in document["detail"]
            assert answer.headers["retry-after"] == "5"

    with public_process(database_url, tmp_path / "a") as http:
        admin = Caller(http, key)
        assert admin.get("/admin/tenants")["items"] == []
        restore, is_new = gate.begin(database)
        assert is_new
        # Its connections were made before the restore began.
        require_refused(admin)
        with pytest.raises(RestoreOpen, match=str(restore.epoch)):
            require_no_restore_now(database)
        assert database.execute("select count(*) from tenants").fetchone() == (0,)
        database.execute("select pg_advisory_unlock_all()")
        done = berth("restore", "run", "--without-export", NO_NATS, "--output", "json", BERTH_DATABASE_URL=database_url)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["epoch"] == str(restore.epoch)
        assert http.get("/ok").status_code == 200
        assert admin.call("POST", "/admin/tenants", {"name": fresh("tenant")}).status_code == 201
        with psycopg.connect(database_url, autocommit=True) as connection:
            again, is_new = gate.begin(connection)
        assert is_new
        assert again.epoch != restore.epoch
        restore = again
        require_refused(admin)


def test_a_process_that_is_started_during_a_restore_reports_it_and_serves_when_it_is_closed(
    database_url: str, database: psycopg.Connection, tmp_path: Path
) -> None:
    restore, _ = gate.begin(database)
    with started_public_process(database_url, tmp_path / "a") as http:
        wait_for(lambda: status_of(http) == 503, "the process to listen")
        assert str(restore.epoch) in problem(http.get("/ok"), 503, "restore_in_progress")["detail"]
        closed(database, restore)
        wait_for(lambda: http.get("/ok").status_code == 200, "the process to serve")


def closed(database: psycopg.Connection, restore: gate.Restore) -> bool:
    """Close the restore without an export; whether that closed it."""
    gate.waive_export(database, restore.epoch, NO_NATS)
    return gate.close(database, restore.epoch)


def test_every_tenant_and_the_operators_are_notified_with_the_interval_once(
    database_url: str, database: psycopg.Connection
) -> None:
    tenants = [
        database.execute("insert into tenants (name) values (%s) returning id", (name,)).fetchone() for name in "abc"
    ]
    database.execute("update tenants set state = 'deleted', deleted_at = now() where name = 'c'")
    leave_events(database, [{"before": 1}])
    database.execute("select log_advance(10)")
    restore, _ = gate.begin(database)
    database.execute("select restore_raise_sequences(%s)", (restore.epoch,))
    assert closed(database, restore)
    assert not gate.close(database, restore.epoch)
    rows = (
        database.cursor(row_factory=dict_row).execute("select * from outbox order by tenant_id nulls last").fetchall()
    )
    assert [row["tenant_id"] for row in rows] == [*(row[0] for row in tenants[:2] if row is not None), None]
    ended = gate.read_restore(database)
    assert ended is not None
    assert ended.closed_at is not None
    assert restore.last_event_at is not None
    for row in rows:
        assert (row["event_type"], row["subject"]) == ("control_plane.restored", f"restores/{restore.epoch}")
        times = [datetime.fromisoformat(row["payload"][name]) for name in ("restored_to", "begun_at", "closed_at")]
        assert times == [restore.last_event_at, restore.begun_at, ended.closed_at]
        assert row["payload"]["first"] == 2
        assert row["payload"]["last"] >= 1 + 2**20
    assert unpromised(database_url) == []


def status_of(http: httpx.Client) -> int | None:
    """The status of `/ok`; None while nothing listens."""
    try:
        return http.get("/ok").status_code
    except httpx.TransportError:
        return None


def test_the_relay_sequences_and_publishes_nothing_until_the_restore_is_closed(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    relay = start_relay()
    leave_events(database, [{"before": 1}])
    wait_for(lambda: stream_end(nats_url) == 1, "the event is published")
    restore, _ = gate.begin(database)
    wait_for(lambda: not relay.ok()["ok"], "the relay notices the restore")
    wait_for(
        lambda: (
            relay.ok()["sequencing"] == relay.ok()["publishing"] == "waiting until `berth restore run` has finished"
        ),
        "the relay says why",
    )
    leave_events(database, [{"during": 1}])
    other = start_relay(ready=False)
    wait_for(lambda: "waiting until" in str(other.ok().get("publishing")), "a relay that is started now waits too")
    assert (head_version(database), stream_end(nats_url)) == (1, 1)
    assert closed(database, restore)
    assert not gate.close(database, restore.epoch)
    wait_for(lambda: stream_end(nats_url) == 3, "the relay goes on")
    relay.wait_until_ok()


def test_a_worker_waits_for_the_end_of_a_restore_longer_than_for_a_database(
    database_url: str, database: psycopg.Connection
) -> None:
    async def scene() -> str | None:
        pools = connect_database(
            database_url, pool_size=1, reserve_size=1, lock_timeout_seconds=2, transaction_timeout_seconds=20,
            application="test",
        )  # fmt: skip
        health = Health()
        with pytest.raises(RestoreInProgress, match=str(restore.epoch)):
            async with pools.for_platform().transaction():
                pass
        waiting = asyncio.create_task(await_database(pools, 0.0, health))
        await asyncio.to_thread(wait_for, lambda: health.waiting_for is not None, "the worker to wait")
        assert not waiting.done()
        await asyncio.to_thread(closed, database, restore)
        await waiting
        await pools.close()
        return health.waiting_for

    restore, _ = gate.begin(database)
    with pytest.raises(RestoreOpen):
        asyncio.run(
            connect_directly(
                database_url, lock_timeout_seconds=1, transaction_timeout_seconds=1, application="metering"
            )
        )
    assert str(restore.epoch) in str(asyncio.run(scene()))


def test_one_restore_is_open_however_often_it_is_begun(database_url: str, database: psycopg.Connection) -> None:
    def begin(_: int) -> tuple[str, bool]:
        # One ends the session of another; the command is repeated then.
        while True:
            try:
                with psycopg.connect(database_url, autocommit=True) as connection:
                    row = connection.execute("select epoch, is_new from restore_begin()").fetchone()
            except psycopg.OperationalError:
                continue
            assert row is not None
            return str(row[0]), bool(row[1])

    with ThreadPoolExecutor(4) as threads:
        begun = list(threads.map(begin, range(4)))
    assert len({epoch for epoch, _ in begun}) == 1
    assert [is_new for _, is_new in begun].count(True) == 1
    assert database.execute("select action, count(*) from audit where action ~ 'restore' group by 1").fetchall() == [
        ("restore.begin", 1)
    ]


def test_sessions_that_may_not_be_ended_keep_the_restore_from_going_on(
    database_url: str, database: psycopg.Connection
) -> None:
    owner = f"owner_{uuid4().hex[:8]}"
    database.execute(f"create role {owner}".encode())
    try:
        # As in a deployment whose owner of the schema is no superuser.
        database.execute(f"grant select, insert, update on all tables in schema public to {owner}".encode())
        database.execute(f"grant create on schema public to {owner}".encode())
        database.execute(f"alter function restore_end_sessions owner to {owner}".encode())
        with (
            psycopg.connect(database_url, application_name="an API"),
            pytest.raises(Refused, match="an API") as refused,
        ):
            gate.begin(database)
        assert refused.value.code == "sessions_remain"
        assert database.execute("select count(*) from restores where closed_at is null").fetchone() == (1,)
        gone = "select count(*) = 0 from pg_stat_activity where application_name = 'an API'"
        wait_for(lambda: database.execute(gone).fetchone() == (True,), "the session has ended")
        restore, is_new = gate.begin(database)
        assert not is_new
        assert closed(database, restore)
    finally:
        database.execute("alter function restore_end_sessions owner to postgres")
        database.execute(f"drop owned by {owner}".encode())
        database.execute(f"drop role {owner}".encode())


def test_each_role_sees_an_open_restore_and_none_can_close_one(database_url: str, database: psycopg.Connection) -> None:
    restore, _ = gate.begin(database)
    for role in Role:
        with psycopg.connect(as_role(database_url, role), autocommit=True) as connection:
            with pytest.raises(RestoreOpen):
                require_no_restore_now(connection)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("delete from restores")
            if role is not Role.OPERATOR:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("select restore_close(%s)", (restore.epoch,))


def test_a_restore_is_not_begun_while_the_recovery_goes_on(database_url: str, database: psycopg.Connection) -> None:
    name = database_url.rpartition("/")[2]
    database.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())
    assert_one_sentence(berth("restore", "begin", BERTH_DATABASE_URL=database_url), 1, "read-only transaction")
    assert database.execute("select count(*) from restores").fetchone() == (0,)


@pytest.mark.full
def test_the_commands_say_what_is_missing(empty_url: str, database_url: str) -> None:
    shown = berth("restore", "show", BERTH_DATABASE_URL=database_url)
    assert (shown.returncode, shown.stdout.strip()) == (0, "this database was never restored")
    begun = berth("restore", "begin", BERTH_DATABASE_URL=database_url)
    assert begun.returncode == 0, begun.stderr
    assert "go on with `berth restore run`" in begun.stdout
    again = json.loads(berth("restore", "begin", "-o", "json", BERTH_DATABASE_URL=database_url).stdout)
    assert (again["is_new"], again["closed_at"]) == (False, None)
    assert "open: nothing is served" in berth("restore", "show", BERTH_DATABASE_URL=database_url).stdout
    migrations.upgrade(empty_url, "0047")
    refused = berth("restore", "begin", "-o", "json", BERTH_DATABASE_URL=empty_url)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "schema_too_old"
    with psycopg.connect(empty_url, autocommit=True) as connection:
        require_no_restore_now(connection)
