"""The API with a standby: which routes it serves, that each of their statements runs there, and what it never serves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.calling import Caller, insert_admin_key, new_place, new_tenant, problem, rent
from tests.api.documents import public_document
from tests.api.processes import metric_of, public_process
from tests.database.replicas.pairs import Pair, address_of, running_pair
from tests.log.streaming import events_of, subscribed
from tests.support.log_versions import registered, version
from tests.support.waiting import wait_for

READS = "berth_api_replicated_reads_total"
BY_STANDBY, BY_PRIMARY = f'{READS}{{source="standby"}}', f'{READS}{{source="primary"}}'
FALLBACKS = "berth_api_replica_fallbacks_total"
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
SERVED = {
    "/api/v1/allocations",
    "/api/v1/allocations/{allocation_id}/timeline",
    "/api/v1/availability",
    "/api/v1/fault-reports",
    "/api/v1/images",
    "/api/v1/regions",
    "/api/v1/reservations",
    "/api/v1/resources",
    "/api/v1/skus",
    "/api/v1/usage",
    "/api/v1/admin/allocations",
    "/api/v1/admin/fault-reports",
    "/api/v1/admin/images",
    "/api/v1/admin/nodes",
}
"""The routes whose reads standbys serve; docs/reference/http-api.md lists them."""
LASTING = {"/v1/subscribe", "/api/v1/allocations/{allocation_id}/console"}


@dataclass
class Stage:
    """The API over a primary and its standby, with what two tenants have."""

    pair: Pair
    http: httpx.Client
    admin: Caller
    tenant: Caller
    other: Caller
    allocation_id: str

    def ask(self, caller: Caller, path: str, at_least: int | None) -> httpx.Response:
        """A GET of a path from the root that states this version; None: none."""
        headers = {"authorization": f"Bearer {caller.key}"}
        if at_least is not None:
            headers["Berth-Min-Version"] = str(at_least)
        return self.http.get(path, headers=headers)

    def newest(self) -> int:
        """The newest version, which the standby has, too."""
        found = int(version(self.admin)["version"])
        self.pair.catch_up()
        return found

    def counted(self, act: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        """What `act` returns, and how many reads either server has served for it."""
        before = {name: metric_of(self.http, name) for name in (BY_STANDBY, BY_PRIMARY)}
        found = act()
        return found, {name: metric_of(self.http, name) - count for name, count in before.items()}


@pytest.fixture(scope="module")
def stage(server_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One API for the module."""
    directory = tmp_path_factory.mktemp("replicated-api")
    with running_pair(server_directory) as pair:
        settings = {
            "BERTH_READ_DATABASE_URL": address_of(pair.b, standby=True),
            "BERTH_READ_DATABASE_POOL_SIZE": "2",
            "BERTH_READ_WAIT_SECONDS_MAX": "0.2",
            "BERTH_CREDENTIAL_CACHE_SECONDS": "0",
        }
        with (
            public_process(pair.a.url(), directory / "api", settings) as http,
            psycopg.connect(pair.a.url(), autocommit=True) as database,
        ):
            admin = Caller(http, insert_admin_key(pair.a.url()))
            place, tenant, other = new_place(admin, database), new_tenant(admin), new_tenant(admin)
            allocation_id = rent(tenant, place)["allocation_id"]
            tenant.make("/reservations", {"resources": [f"slot:{place.node['id']}:7"], "holder_id": "holder"})
            found = Stage(pair, http, admin, tenant, other, allocation_id)
            pair.catch_up()
            wait_for(lambda: _serves(found), "the standby serves")
            yield found


def _serves(stage: Stage) -> bool:
    return bool(stage.counted(lambda: stage.ask(stage.admin, "/api/v1/skus", 0))[1][BY_STANDBY])


def real(stage: Stage, path: str) -> str:
    """A request for a path of the document."""
    ids = {"allocation_id": stage.allocation_id, "number": "1"}
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: ids.get(found[1], UNKNOWN_ID), path)


def test_each_read_of_the_listed_routes_runs_on_the_standby_and_no_other_does(stage: Stage) -> None:
    at_least = stage.newest()
    served = set()
    for path, of in public_document()["paths"].items():
        if "get" not in of or path in LASTING:
            continue
        caller = stage.admin if "/admin/" in path else stage.tenant
        answer, counts = stage.counted(lambda path=path, caller=caller: stage.ask(caller, real(stage, path), at_least))  # type: ignore[misc]
        assert answer.status_code < 500, (path, answer.text)
        if counts[BY_STANDBY]:
            served.add(path)
            assert answer.status_code == 200, (path, answer.text)
            assert int(answer.headers["berth-version"]) >= at_least
        assert counts[BY_PRIMARY] == 0, f"a statement of {path} fails on a standby"
    assert served == SERVED


def test_the_filters_of_the_lists_run_on_the_standby(stage: Stage) -> None:
    at_least = stage.newest()
    soon, later = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (1, 2))
    for caller, path in (
        (stage.tenant, "/api/v1/allocations?state=requested&label=a%3Db&limit=1"),
        (stage.tenant, f"/api/v1/availability?starts_at={soon}&ends_at={later}&gpus=1"),
        (stage.tenant, f"/api/v1/usage?by=day&from={soon}&to={later}"),
        (stage.tenant, "/api/v1/reservations?state=hold"),
        (stage.tenant, "/api/v1/resources?kind=slot"),
        (stage.admin, f"/api/v1/allocations?tenant_id={stage.tenant.tenant_id}"),
        (stage.admin, "/api/v1/admin/nodes?state=active"),
    ):
        answer, counts = stage.counted(lambda path=path, caller=caller: stage.ask(caller, path, at_least))  # type: ignore[misc]
        assert answer.status_code == 200, (path, answer.text)
        assert counts == {BY_STANDBY: 1, BY_PRIMARY: 0}, path


def test_a_read_that_states_no_version_sees_every_write_before_it(stage: Stage) -> None:
    stage.newest()
    stage.pair.pause()
    try:
        name = registered(stage.admin)
        answer, counts = stage.counted(
            lambda: stage.ask(stage.admin, "/api/v1/resources?kind=registered&limit=500", None)
        )
        assert name in {item["id"] for item in answer.json()["items"]}
        assert counts == {BY_STANDBY: 0, BY_PRIMARY: 0}
    finally:
        stage.pair.resume()


def test_the_audit_has_what_was_done_before_although_its_rows_have_no_version(stage: Stage) -> None:
    at_least = stage.newest()
    stage.pair.pause()
    try:
        registered(stage.admin)
        path = "/api/v1/admin/audit?action=resource.create&limit=500"
        newest, counts = stage.counted(lambda: stage.ask(stage.admin, path, None).json()["items"])
        assert stage.ask(stage.admin, path, at_least).json()["items"] == newest != []
        assert counts == {BY_STANDBY: 0, BY_PRIMARY: 0}
    finally:
        stage.pair.resume()


def test_no_read_is_staler_than_it_demands(stage: Stage) -> None:
    before = stage.newest()
    stage.pair.pause()
    try:
        name = registered(stage.admin)
        demanded = int(version(stage.admin)["version"])
        path = "/api/v1/resources?kind=registered&limit=500"
        for at_least, shown in ((demanded, True), (before, False)):
            answer = stage.ask(stage.admin, path, at_least)
            assert int(answer.headers["berth-version"]) >= at_least
            assert (name in {item["id"] for item in answer.json()["items"]}) == shown
        problem(stage.ask(stage.admin, path, demanded + 1_000_000), 409, "version_not_reached")
    finally:
        stage.pair.resume()


def test_a_revoked_key_is_refused_although_the_standby_has_it_live(stage: Stage) -> None:
    made = stage.admin.make("/admin/api-keys", {"name": "gone", "role": "tenant", "tenant_id": stage.tenant.tenant_id})
    doomed = Caller(stage.http, made["key"], stage.tenant.tenant_id)
    stage.newest()
    assert stage.ask(doomed, "/api/v1/allocations", 0).status_code == 200
    stage.pair.pause()
    try:
        assert stage.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code in (200, 204)
        problem(stage.ask(doomed, "/api/v1/allocations", 0), 401, "unauthenticated")
    finally:
        stage.pair.resume()


def test_a_tenant_sees_nothing_of_another_on_the_standby(stage: Stage) -> None:
    at_least = stage.newest()
    mine, counts = stage.counted(lambda: stage.ask(stage.tenant, "/api/v1/allocations", at_least))
    assert [item["allocation_id"] for item in mine.json()["items"]] == [stage.allocation_id]
    assert counts[BY_STANDBY] == 1
    for path in ("/api/v1/allocations", "/api/v1/reservations", "/api/v1/fault-reports", "/api/v1/usage"):
        answer, counts = stage.counted(lambda path=path: stage.ask(stage.other, path, at_least))  # type: ignore[misc]
        assert (answer.json()["items"], counts[BY_STANDBY]) == ([], 1), path
    foreign = stage.ask(stage.other, f"/api/v1/allocations/{stage.allocation_id}/timeline", at_least)
    problem(foreign, 404, "not_found")
    problem(
        stage.ask(stage.other, f"/api/v1/allocations?tenant_id={stage.tenant.tenant_id}", at_least), 404, "not_found"
    )


def test_the_policies_hide_rows_on_the_standby(stage: Stage) -> None:
    """Without the statements' filters as well: the standby has the policies of the primary, and the role is no owner."""
    stage.newest()
    with psycopg.connect(address_of(stage.pair.b, standby=True), autocommit=True) as connection:
        assert connection.execute("select count(*) from allocations").fetchone() == (0,)
        for tenant, rows in ((stage.other, 0), (stage.tenant, 1)):
            with connection.transaction():
                connection.execute("select set_config('berth.tenants', %s, true)", (f"{{{tenant.tenant_id}}}",))
                assert connection.execute("select count(*) from allocations").fetchone() == (rows,)


def test_the_feed_catches_up_from_the_standby_and_goes_on_from_the_primary(stage: Stage) -> None:
    behind = stage.newest()
    stage.pair.pause()
    try:
        for _ in range(3):
            registered(stage.admin)
        newest = int(version(stage.admin)["version"])

        def follow() -> list[int]:
            with subscribed(stage.admin, after=0) as events:
                found = [events_of(events, 1)[0].version]
                registered(stage.admin)  # pushed to a stream that has caught up, also to one that has missed something
                while found[-1] < newest:
                    found.append(events_of(events, 1)[0].version)
            return found

        found, counts = stage.counted(follow)
        assert found == list(range(1, found[-1] + 1))
        assert counts[BY_STANDBY] >= 1
        assert behind < newest
    finally:
        stage.pair.resume()


def test_without_the_standby_the_api_answers_as_before(stage: Stage) -> None:
    """The last test of the module: it ends the standby."""
    at_least = stage.newest()
    stage.pair.b.kill()
    for caller, path in ((stage.tenant, "/api/v1/allocations"), (stage.admin, "/api/v1/admin/nodes")):
        for _ in range(3):
            answer = stage.ask(caller, path, at_least)
            assert answer.status_code == 200, answer.text
            assert int(answer.headers["berth-version"]) >= at_least
    assert stage.http.get("/ok").status_code == 200
    assert metric_of(stage.http, f'{FALLBACKS}{{cause="lost"}}') <= 2, "of two connections, in flight at most"
    wait_for(lambda: metric_of(stage.http, "berth_api_replica_connections") == 0, "the watch has noticed")
    stage.pair.b.start()
    wait_for(lambda: _serves(stage), "the standby serves again")
