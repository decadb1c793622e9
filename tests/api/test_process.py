"""The API as the process it is in production: a key revoked elsewhere, a database that goes away and comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres, free_port, new_password
from berth.process.schema_window import SCHEMA_REVISION
from migrations.roles import Role
from tests.api.calling import Caller, fresh, insert_admin_key, new_place, new_tenant, one_gpu, problem, rent
from tests.api.processes import metric_of, public_process
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for


def test_a_key_revoked_at_one_process_is_soon_refused_by_another(database_url: str, tmp_path: Path) -> None:
    key = insert_admin_key(database_url)
    with public_process(database_url, tmp_path / "a") as first, public_process(database_url, tmp_path / "b") as second:
        admin = Caller(first, key)
        tenant = new_tenant(admin)
        elsewhere = Caller(second, tenant.key)
        elsewhere.get("/skus")
        (made,) = admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
        assert admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
        problem(tenant.call("GET", "/skus"), 401, "unauthenticated")
        wait_for(lambda: elsewhere.call("GET", "/skus").status_code == 401, "the other process to refuse the key")


def test_a_database_that_goes_away_is_logged_and_survived(server_directory: Path, tmp_path: Path) -> None:
    server = LocalPostgres(server_directory / "goes-away", free_port(), new_password(), {"fsync": "off"})
    server.start()
    server.make_roles(dict.fromkeys(Role, server.password))
    try:
        migrations.upgrade(server.url())
        key = insert_admin_key(server.url())
        with public_process(server.url(), tmp_path / "api") as http:
            admin = Caller(http, key)
            body, operation = {"name": fresh("tenant")}, "the one"
            kept = admin.call("POST", "/admin/tenants", body, key=operation)
            server.kill()
            for answer in (
                http.get("/ok"),
                admin.call("GET", "/admin/tenants"),
                admin.call("POST", "/admin/tenants", {"name": fresh("tenant")}),
            ):
                document = problem(answer, 503, "database_unavailable")
                assert document["outcome"] == "not_done"
                assert answer.headers["retry-after"]
            server.start()
            wait_for(lambda: http.get("/ok").status_code == 200, "the process to find the database again")
            again = admin.call("POST", "/admin/tenants", body, key=operation)
            assert (again.status_code, again.content) == (201, kept.content)
            assert again.headers["idempotent-replayed"] == "true"
    finally:
        server.stop()


def test_a_schema_that_is_too_old_is_reported(postgres_server: LocalPostgres) -> None:
    name = f"old_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    migrations.upgrade(postgres_server.url(name))
    with psycopg.connect(postgres_server.url(name)) as connection:
        connection.execute("update alembic_version set version_num = '0001'")
    process = listening(postgres_server.url(name), 0.2)
    _, told = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 1
    assert told.splitlines()[-1].endswith(
        f"the database's schema is 0001 and this Berth needs {SCHEMA_REVISION}; run `berth migrate`"
    )


def test_a_schema_that_serves_later_processes_only_is_reported(database_url: str, tmp_path: Path) -> None:
    later = "update function_generation set oldest_process = '9999'"
    with public_process(database_url, tmp_path) as http, psycopg.connect(database_url, autocommit=True) as connection:
        assert http.get("/ok").status_code == 200
        connection.execute(later)
        document = problem(http.get("/ok"), 503, "database_unavailable")
        assert document["detail"].endswith(
            f"serves processes of 9999 and later, and this Berth is of {SCHEMA_REVISION}; upgrade this process"
        )
    process = listening(database_url, 0.2)
    _, log = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 1
    assert log.splitlines()[-1].endswith("upgrade this process")


def test_the_code_needs_the_newest_revision_that_there_is() -> None:
    assert migrations.head_revision() == SCHEMA_REVISION


def listening(database_url: str, startup_seconds_max: float) -> subprocess.Popen[str]:
    """A public listener that has just been started; its log is on stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    environment |= {
        "BERTH_DATABASE_URL": database_url,
        "BERTH_PUBLIC_PORT": str(free_port()),
        "BERTH_STARTUP_SECONDS_MAX": str(startup_seconds_max),
    }
    command = [sys.executable, "-m", "orchestrator", "--listen", "public"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.full
def test_a_database_that_does_not_come_ends_the_start_with_one_sentence() -> None:
    process = listening("postgresql://absent:x@127.0.0.1:1/none", 2)
    _, told = process.communicate(timeout=WAIT_SECONDS_MAX)
    *log, sentence = told.splitlines()
    assert process.returncode == 1
    assert {json.loads(line)["for_what"] for line in log} == {"database"}
    assert sentence.startswith("orchestrator: waited 2 s for the database: ")


def test_a_database_that_comes_late_is_waited_for(postgres_server: LocalPostgres) -> None:
    name = f"late_{uuid.uuid4().hex}"
    process = listening(postgres_server.url(name), 60)
    try:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["for_what"] == "database"
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        migrations.upgrade(postgres_server.url(name))
        assert any(json.loads(line)["event"] == "serving" for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS_MAX)


def waits_for_lock(database: psycopg.Connection[tuple[object, ...]], statement: str) -> int | None:
    """The process id of the session that waits for a lock in a statement that holds this text."""
    found = database.execute(
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query ilike %s", (f"%{statement}%",)
    ).fetchone()
    return None if found is None else int(str(found[0]))


def test_reads_that_hold_every_connection_do_not_hold_up_a_release(database_url: str, tmp_path: Path) -> None:
    tight = {"BERTH_DATABASE_POOL_SIZE": "1", "BERTH_DATABASE_RESERVE_SIZE": "1", "BERTH_LOCK_TIMEOUT_SECONDS": "60"}
    key = insert_admin_key(database_url)
    with (
        public_process(database_url, tmp_path / "api", tight) as http,
        psycopg.connect(database_url) as locking,
        psycopg.connect(database_url, autocommit=True) as database,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        admin = Caller(http, key)
        tenant = new_tenant(admin)
        allocation_id = rent(tenant, new_place(admin, database))["allocation_id"]
        locking.execute("lock table audit_chain")
        reading = elsewhere.submit(admin.call, "GET", "/admin/audit")
        wait_for(lambda: waits_for_lock(database, "audit") is not None, "a read to hold the only connection")
        released = tenant.call("POST", f"/allocations/{allocation_id}/release")
        assert (released.status_code, reading.done()) == (202, False)
        locking.rollback()
        assert reading.result().status_code == 200


def test_an_unknown_outcome_names_the_key_to_query(database_url: str, tmp_path: Path) -> None:
    patient = {"BERTH_LOCK_TIMEOUT_SECONDS": "60"}
    with (
        public_process(database_url, tmp_path / "api", patient) as http,
        psycopg.connect(database_url) as locking,
        psycopg.connect(database_url, autocommit=True) as database,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        admin = Caller(http, insert_admin_key(database_url))
        place, tenant = new_place(admin, database), new_tenant(admin)
        locking.execute("select 1 from tenant_quotas where tenant_id = %s for no key update", (tenant.tenant_id,))
        body = one_gpu(tenant, place)
        renting = elsewhere.submit(tenant.call, "POST", "/allocations", body)
        wait_for(lambda: waits_for_lock(database, "place_allocations") is not None, "the create to be under way")
        database.execute("select pg_terminate_backend(%s)", (waits_for_lock(database, "place_allocations"),))
        document = problem(renting.result(), 503, "outcome_unknown")
        assert document["outcome"] == "unknown"
        locking.rollback()
        again = tenant.call("POST", "/allocations", body, key=document["operation_key"])
        assert again.status_code == 201
        repeated = tenant.call("POST", "/allocations", body, key=document["operation_key"])
        assert (repeated.json(), repeated.headers["idempotent-replayed"]) == (again.json(), "true")


def test_every_write_leaves_a_line_in_the_log_and_no_read_does(database_url: str, tmp_path: Path) -> None:
    with (
        public_process(database_url, tmp_path / "api") as http,
        psycopg.connect(database_url, autocommit=True) as database,
    ):
        admin = Caller(http, insert_admin_key(database_url))
        place, tenant = new_place(admin, database), new_tenant(admin)
        made = tenant.call("POST", "/allocations", one_gpu(tenant, place), key="the key").json()
        tenant.get(f"/allocations/{made['allocation_id']}")
        tenant.make(f"/allocations/{made['allocation_id']}/release")
        log = tmp_path / "api" / "api.log"

        def told() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            return [line for line in lines if line["event"] == "request" and line.get("tenant_id") == tenant.tenant_id]

        wait_for(lambda: len(told()) == 3, "the last write's line, which is written after its answer")
        _, create, release = told()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert (create["method"], create["path"], create["status"]) == ("POST", "/api/v1/allocations", 201)
        assert (create["allocation_id"], create["operation_key"]) == (made["allocation_id"], "the key")
        assert release["path"] == f"/api/v1/allocations/{made['allocation_id']}/release"
        assert not [line for line in lines if line.get("method") == "GET"]


def test_metrics_are_on_their_own_port_only(database_url: str, tmp_path: Path) -> None:
    with public_process(database_url, tmp_path / "api") as http:
        assert http.get("/ok").status_code == 200
        problem(http.get("/metrics"), 404, "not_found")
        assert metric_of(http, 'berth_api_requests_total{method="GET",status="404",zone="public"}') == 1
