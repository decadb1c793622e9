"""The API as the process it is in production: a key revoked elsewhere, a database that goes away and comes back."""

from __future__ import annotations

from pathlib import Path

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
