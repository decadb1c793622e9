"""Every read returns a version that its snapshot includes, and waits for its `min_version`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event

from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Database, connect_database
from orchestrator.log.version_parameters import OPEN_PATHS
from tests.api.calling import Caller, at_once, fresh, insert_admin_key, new_place, new_tenant, problem, rent
from tests.api.documents import public_document
from tests.api.processes import public_process
from tests.support.log_versions import registered, version
from tests.support.public_api import PublicApi

UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
STATUS, KEY = "/v1/status", "/v1/kv/{key}"
WIPE = "/api/v1/allocations/{allocation_id}/wipe-certificate"  # the allocation of the stage is not released
TOPOLOGY = "/api/v1/admin/nodes/{node_id}/topology"  # nothing was discovered of the stage's node
CONSOLE = "/api/v1/allocations/{allocation_id}/console"  # what the node has now, and this process serves none
HEALTH = "/api/v1/admin/nodes/{node_id}/health"  # no probe was issued to it
BMC = "/api/v1/admin/nodes/{node_id}/bmc"  # it has none
DEPLOY_RUN = "/api/v1/admin/nodes/{node_id}/deploy-system/run"  # none was requested
ADOPTION = "/api/v1/admin/nodes/{node_id}/adoption"  # its system was not adopted
DEPLOY_SYSTEM = "/api/v1/admin/nodes/{node_id}/deploy-system"  # none was permitted
"""The first has another meaning of `min_version`, the second's key is not an operation's."""
PLAN = "/api/v1/admin/maintenance/plan"
FEED = "/v1/subscribe"
"""An answer without an end; its own tests tell of its version."""


def read_paths() -> list[str]:
    """Every GET that the OpenAPI document lists, but those that say nothing of the log's world."""
    return [
        path
        for path, of in public_document()["paths"].items()
        if "get" in of and path not in {*OPEN_PATHS, FEED, CONSOLE}
    ]


@pytest.fixture(scope="module")
def stage(api: PublicApi) -> tuple[Caller, dict[str, str]]:
    """A tenant and the ids of what there is."""
    tenant = new_tenant(api.admin)
    place = new_place(api.admin, api.database)
    body = {"resources": [f"slot:{place.node['id']}:7"], "holder_id": "holder"}
    made = tenant.call("POST", "/reservations", body, key="the-hold").json()
    return tenant, {
        "allocation_id": rent(tenant, place)["allocation_id"],
        "reservation_id": made["reservation_id"],
        "resource_id": registered(api.admin),
        "key_id": tenant.get("/ssh-keys")["items"][0]["id"],
        "key": "the-hold",
        "node": place.node["name"],
        "node_id": place.node["id"],
        "tenant_id": str(tenant.tenant_id),
    }


def ask(caller: Caller, path: str, *, headers: dict[str, str] | None = None) -> httpx.Response:
    """A GET of a path from the root."""
    return caller.http.get(path, headers={"authorization": f"Bearer {caller.key}", **(headers or {})})


@pytest.mark.full
def test_every_get_returns_its_version_and_takes_a_least_one(
    api: PublicApi, stage: tuple[Caller, dict[str, str]], subtests: pytest.Subtests
) -> None:
    """Not a parameter of the test: the document takes a second, which only the process that runs it spends."""
    paths = read_paths()
    assert len(paths) > 20
    for path in paths:
        with subtests.test(path):
            _require_told(api, stage, path)


def _require_told(api: PublicApi, stage: tuple[Caller, dict[str, str]], path: str) -> None:
    tenant, ids = stage
    caller = api.admin if "/admin/" in path else tenant
    real = re.sub(
        r"\{(\w+)(:path)?\}", lambda found: ids.get(found[1], "1" if found[1] == "number" else UNKNOWN_ID), path
    )
    starts_at, ends_at = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (0, 1))
    window = f"resources=node:{ids['node_id']}&starts_at={starts_at}&ends_at={ends_at}"
    queries = {
        STATUS: f"{STATUS}?request_id={UNKNOWN_ID}&min_version=0",
        KEY: "/v1/kv/bm9uZQ",
        PLAN: f"{PLAN}?{window}",
    }
    real = queries.get(path, real)
    begin = "&" if "?" in real else "?"
    own = path == STATUS
    # An event not yet sequenced: to include its version, the read has to sequence it.
    wanted = version(api.admin)["version"] + 1
    registered(api.admin)
    for answer in (
        *([] if own else [ask(caller, f"{real}{begin}min_version={wanted}")]),
        ask(caller, real, headers={"Berth-Min-Version": str(wanted)}),
        ask(caller, real),
    ):
        assert answer.status_code in (200, 404), answer.text
        there = (
            path not in (KEY, WIPE, TOPOLOGY, HEALTH, BMC, ADOPTION, DEPLOY_SYSTEM, DEPLOY_RUN)
            and set(re.findall(r"\{(\w+)", path)) <= ids.keys()
        )
        assert (answer.status_code == 200) == there, answer.text
        assert wanted <= int(answer.headers["berth-version"]) <= version(api.admin)["version"]
    for bad in ("-1", "x", "", "1.5", str(2**63), "9" * 30, "%31%30%00", "1&min_version=2"):
        if own:
            break
        refused = problem(ask(caller, f"{real}{begin}min_version={bad}"), 422, "invalid")
        assert refused["errors"][0]["field"] == "min_version"
    problem(ask(Caller(caller.http, "berth_unknown"), path, headers={"Berth-Min-Version": "1"}), 401, "unauthenticated")


def test_a_version_is_of_the_same_snapshot_as_the_content(api: PublicApi) -> None:
    """While others write, no list shows less than its version promises: events of resources name what was made."""

    def write() -> list[int]:
        for _ in range(25):
            registered(api.admin)
            version(api.admin)
        return []

    def read() -> list[int]:
        found = []
        for _ in range(40):
            answer = ask(api.admin, "/api/v1/resources?kind=registered&limit=500")
            told = int(answer.headers["berth-version"])
            shown = {item["id"] for item in answer.json()["items"]}
            rows = api.database.execute(
                "select payload ->> 'resource_id' from log where event_type = 'resource.created' and version <= %s",
                (told,),
            )
            assert {row[0] for row in rows.fetchall()} <= shown
            found.append(told)
        return found

    read_versions = at_once(write, read, write)[1]
    assert len(set(read_versions)) > 5, "the log moved on meanwhile"


def test_a_version_that_is_not_reached_is_reported(database_url: str, tmp_path: Path) -> None:
    key = insert_admin_key(database_url)
    with public_process(database_url, tmp_path / "api", {"BERTH_MIN_VERSION_SECONDS_MAX": "0.2"}) as http:
        admin = Caller(http, key)
        registered(admin)
        head = version(admin)["version"]
        for wanted in (head + 1, 2**63 - 1):
            answer = ask(admin, f"/api/v1/resources?min_version={wanted}")
            document = problem(answer, 409, "version_not_reached")
            assert (document["version"], document["min_version"], document["outcome"]) == (head, wanted, "not_done")
            assert answer.headers["retry-after"] == "1"
        assert ask(admin, f"/api/v1/resources?min_version={head}").status_code == 200


def test_a_version_that_comes_in_time_is_waited_for(api: PublicApi) -> None:
    wanted = version(api.admin)["version"] + 3

    def write() -> httpx.Response | None:
        for _ in range(3):
            registered(api.admin)
        return None

    waited, _ = at_once(lambda: ask(api.admin, f"/api/v1/resources?kind=registered&min_version={wanted}"), write)
    assert waited is not None
    assert waited.status_code == 200, waited.text
    assert int(waited.headers["berth-version"]) >= wanted


def test_what_is_remembered_is_read_again_for_a_version_that_it_lacks(api: PublicApi) -> None:
    """The catalogue is kept for a second; an answer about a region made meanwhile must know it."""
    region = fresh("region")
    problem(ask(api.admin, f"/api/v1/availability?starts_at=2030-01-01T00:00:00Z&region={region}"), 404, "not_found")
    api.admin.put(f"/admin/regions/{region}", {"display_name": "New"})
    registered(api.admin)
    wanted = version(api.admin)["version"]
    answer = ask(api.admin, f"/api/v1/availability?starts_at=2030-01-01T00:00:00Z&region={region}&min_version={wanted}")
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["berth-version"]) >= wanted


def test_writes_and_answers_without_content_have_no_version(api: PublicApi) -> None:
    made = api.admin.call("POST", "/admin/resources", {"id": fresh("seat")})
    assert "berth-version" not in made.headers
    for path in ("/ok", "/live", "/openapi.json"):
        assert "berth-version" not in ask(api.admin, path).headers


@contextmanager
def statements() -> Iterator[list[str]]:
    """Everything that is sent to any database meanwhile."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


OF_OTHERS = ("pg_catalog", "show ", "certificate_requests", "from deploy_systems")
"""In statements of the driver at connect, and of the issuer that runs beside the API of these tests."""


def read_as_of(url: str, *asked: str) -> tuple[list[list[tuple[Any, ...]]], int | None, int]:
    """Rows of each statement in one reading (one statement: `read_one`), the version noted, and the number of statements."""

    async def read() -> tuple[list[list[tuple[Any, ...]]], int | None, int]:
        database: Database = connect_database(
            url, pool_size=1, reserve_size=1, lock_timeout_seconds=5, transaction_timeout_seconds=5, application="test"
        )
        own = ResponseVersion()
        request = database.for_request(own)
        with statements() as sent:
            async with request.reading() if len(asked) > 1 else request.read_one() as reading:
                rows = [[tuple(row) for row in await reading.execute(sql)] for sql in asked]
        await database.close()
        return rows, own.version, len([sql for sql in sent if not any(part in sql for part in OF_OTHERS)])

    return asyncio.run(read())


def test_a_version_costs_one_statement_before_the_content(database_url: str) -> None:
    upside_down = "select n, 7 - n as m, null as nothing from generate_series(1, 5) n order by n desc"
    assert read_as_of(database_url, upside_down) == ([[(n, 7 - n, None) for n in (5, 4, 3, 2, 1)]], 0, 2)
    assert read_as_of(database_url, "select 1 as a where false") == ([[]], 0, 2), "no row is no row"
    assert read_as_of(database_url, "select null as a") == ([[(None,)]], 0, 2), "an empty row is one"
    twice = "with two as (select 1 as a, 2 as a) select * from two -- and a comment"
    assert read_as_of(database_url, twice, "select 3", "select 4") == ([[(1, 2)], [(3,)], [(4,)]], 0, 4)
