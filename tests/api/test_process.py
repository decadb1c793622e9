"""The API as the process it is in production: a key revoked elsewhere, a database that goes away and comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg

import migrations
from berth.local.servers import LocalPostgres, free_port, new_password
from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process, wait_for


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


def test_a_database_that_goes_away_is_said_so_and_survived(tmp_path: Path) -> None:
    server = LocalPostgres(tmp_path / "postgres", free_port(), new_password(), {"fsync": "off"})
    server.start()
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


def test_a_database_that_does_not_come_ends_the_start_with_one_sentence() -> None:
    process = listening("postgresql://nobody:x@127.0.0.1:1/none", 0.2)
    _, told = process.communicate(timeout=60)
    *log, sentence = told.splitlines()
    assert process.returncode == 1
    assert {json.loads(line)["for_what"] for line in log} == {"database"}
    assert sentence.startswith("orchestrator: waited 0 s for the database: ")


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
        process.communicate(timeout=30)
