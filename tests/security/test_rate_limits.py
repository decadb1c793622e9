"""Each principal has a rate for each class of request; what ends something has none."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.edge import Edge
from orchestrator.http import rate_limits
from orchestrator.http.asgi import Receive, Scope, Send
from orchestrator.http.principal_limits import PrincipalLimits
from orchestrator.http.rate_limits import BURST_SECONDS, RateLimits, RequestClass
from orchestrator.problems import RateLimited
from orchestrator.settings import Settings
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process

ONE, OTHER = UUID(int=1), UUID(int=2)
WRITE, READ = RequestClass.WRITE, RequestClass.READ
UPGRADE = {
    "upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip


class Clock:
    """A clock that tests advance."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def limits(rate: float, clock: Clock, own: dict[UUID, dict[RequestClass, float]] | None = None) -> RateLimits:
    """The same rate for every class."""
    return RateLimits(dict.fromkeys(RequestClass, rate), own, clock)


def is_taken(rates: RateLimits, principal: UUID = ONE, of: RequestClass = WRITE) -> bool:
    """Whether one request is within the rate."""
    try:
        rates.take(principal, of)
    except RateLimited:
        return False
    return True


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60), st.integers(1, 20))
def test_no_window_holds_more_than_the_rate_and_a_burst(pauses: list[float], eighths: int) -> None:
    rate, clock = eighths / 8, Clock()
    rates = limits(rate, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        taken += [clock.now for _ in range(5) if is_taken(rates)]
    burst = max(1.0, rate * BURST_SECONDS)
    for first, since in enumerate(taken):
        for number, until in enumerate(taken[first:], 1):
            assert number <= burst + (until - since) * rate + 1e-6


@pytest.mark.full
@given(st.lists(st.floats(0.5, 10), min_size=1, max_size=40))
def test_a_principal_below_its_rate_is_never_refused(pauses: list[float]) -> None:
    clock = Clock()
    rates = limits(2.0, clock)
    for pause in pauses:
        clock.now += pause
        assert is_taken(rates)
    clock.now += 100.0
    assert [is_taken(rates) for _ in range(9)] == [True] * 8 + [False]


def test_each_class_has_its_own_bucket() -> None:
    rates = limits(0.25, Clock())
    for principal in (ONE, OTHER):
        for of in RequestClass:
            assert [is_taken(rates, principal, of) for _ in range(3)] == [True, False, False]


def test_a_tenant_may_have_its_own_rates() -> None:
    found = Settings.model_validate(
        {"database_url": "postgresql://berth@127.0.0.1:1/none", "rates_of_tenants": {str(ONE): {"write": 1.5}}}
    )
    rates = limits(0.25, Clock(), found.rates_of_tenants)
    assert [is_taken(rates) for _ in range(7)] == [True] * 6 + [False]
    assert [is_taken(rates, of=READ) for _ in range(2)] == [True, False], "the others are as every tenant's"
    assert [is_taken(rates, OTHER) for _ in range(2)] == [True, False]


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "BUCKETS_MAX", 10)
    rates = limits(0.25, Clock())
    assert is_taken(rates)
    for number in range(10, 1_000):
        assert is_taken(rates, UUID(int=number))
        assert not is_taken(rates), "a bucket in use is kept"
    assert len(rates) == 10


def test_what_ends_something_has_no_rate() -> None:
    async def scene() -> None:
        counted = PrincipalLimits(100, 100, limits(0.25, Clock()))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await counted.admit(scope, ONE)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        edge = Edge(app, zone="test", body_bytes_max=1_024, in_flight_max=100)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test") as http:
            assert (await http.post("/api/v1/allocations")).status_code == 200
            refused = await http.post("/api/v1/allocations")
            document = problem(refused, 429, "rate_limited")
            assert document["outcome"] == "not_done"
            assert refused.headers["retry-after"] == "4"
            assert refused.headers["ratelimit-policy"] == '"write";q=1;w=4'
            assert refused.headers["ratelimit"] == '"write";r=0;t=4'
            for verb in ("release", "cancel", "confirm"):
                for _ in range(20):
                    assert (await http.post(f"/api/v1/things/{verb}")).status_code == 200

    asyncio.run(scene())


RATES = {"BERTH_OPERATION_QUERIES_PER_SECOND_MAX": "0.01", "BERTH_STREAMS_PER_SECOND_MAX": "0.01"}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with public_process(database_url, tmp_path, RATES) as http:
        yield http


def test_random_status_queries_are_refused_to_one_tenant_alone(api: httpx.Client, database_url: str) -> None:
    """Each such query stores a tombstone: without a rate one tenant fills the table of all."""
    admin = Caller(api, insert_admin_key(database_url))
    hostile, quiet = new_tenant(admin), new_tenant(admin)
    since = "1970-01-01T00:00:00Z"
    statuses = [hostile.call("GET", f"/operations/{uuid.uuid4()}", since=since).status_code for _ in range(20)]
    assert statuses[1:] == [429] * 19
    problem(hostile.call("GET", f"/operations/{uuid.uuid4()}"), 429, "rate_limited")
    assert hostile.call("GET", "/allocations").status_code == 200
    assert quiet.call("GET", f"/operations/{uuid.uuid4()}", since=since).status_code != 429
    with psycopg.connect(database_url) as database:
        stored = database.execute("select count(*) from operations where scope = %s", (hostile.tenant_id,)).fetchone()
    assert stored is not None
    assert stored[0] <= 1


def test_a_refused_write_is_logged_with_its_principal(database_url: str, tmp_path: Path) -> None:
    with public_process(database_url, tmp_path, {"BERTH_WRITES_PER_SECOND_MAX": "0.01"}) as http:
        admin = Caller(http, insert_admin_key(database_url))
        assert admin.call("POST", "/admin/tenants", {"name": "first"}).status_code == 201
        problem(admin.call("POST", "/admin/tenants", {"name": "second"}), 429, "rate_limited")
    lines = [json.loads(line) for line in (tmp_path / "api.log").read_text().splitlines() if line.startswith("{")]
    with psycopg.connect(database_url) as database:
        keys = [str(row[0]) for row in database.execute("select id from api_keys")]
    assert [line["limited_principal"] for line in lines if line.get("status") == 429] == keys


def test_sockets_have_a_rate(api: httpx.Client, database_url: str) -> None:
    tenant = new_tenant(Caller(api, insert_admin_key(database_url)))
    headers = {"authorization": f"Bearer {tenant.key}", **UPGRADE}
    refused = [
        problem(api.get("/api/v1/notifications", params={"nonsense": "1"}, headers=headers), status, code)
        for status, code in ((422, "invalid"), (429, "rate_limited"))
    ]
    assert len(refused) == 2
