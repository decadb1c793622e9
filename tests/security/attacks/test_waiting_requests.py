"""Requests that wait for a turn or a version take no place of others, and are bounded by number, bytes and time."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from orchestrator.edge.edge import Edge
from orchestrator.http.asgi import Receive, Scope, Send
from orchestrator.http.principal_limits import PrincipalLimits
from orchestrator.http.rate_limits import RateLimits, RequestClass
from orchestrator.http.waiting_requests import PLACE, WaitingRequests
from orchestrator.problems import Overloaded
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import metric_of, public_process
from tests.security.listener import get, listening
from tests.support.waiting import WAIT_SECONDS_MAX, async_wait_for, let_others_run, wait_for

IN_FLIGHT_MAX = 20
KEYS = {name: UUID(int=number) for number, name in enumerate(("one", "two", "three"))}
WAITING = "berth_api_requests_waiting "


class Place:
    """A place that notes what happens to it. `size`: bytes that its request holds."""

    def __init__(self, size: int = 0) -> None:
        self.size, self.waits, self.is_full = size, 0, False

    def begin_wait(self) -> int:
        self.waits += 1
        return self.size

    def end_wait(self) -> None:
        self.waits -= 1

    def require_room(self) -> None:
        if self.is_full:
            raise Overloaded("full")


class Table:
    """A table of waiting requests, with requests that wait until `go`."""

    def __init__(self, **bounds: Any) -> None:
        self.waiting = WaitingRequests(**bounds)
        self.go = asyncio.Event()

    async def send(self, principal: UUID, count: int = 1, size: int = 0) -> list[asyncio.Task[None]]:
        """So many requests that begin to wait."""
        sent = [asyncio.create_task(self._wait(principal, Place(size))) for _ in range(count)]
        await let_others_run(5)
        return sent

    async def _wait(self, principal: UUID, place: Place) -> None:
        try:
            async with self.waiting.hold({PLACE: place}, principal):
                await self.go.wait()
        finally:
            assert place.waits == 0, "it has its place again, whatever happened"


def ended(sent: list[asyncio.Task[None]]) -> list[bool]:
    return [isinstance(task.exception(), Overloaded) if task.done() else False for task in sent]


def test_a_principal_beyond_its_bound_is_refused() -> None:
    async def scene() -> None:
        table = Table(principal_max=3)
        sent = await table.send(KEYS["one"], 5)
        assert ended(sent) == [False] * 3 + [True] * 2
        table.go.set()
        await asyncio.gather(*sent[:3], *await table.send(KEYS["one"], 3))
        assert not len(table.waiting)

    asyncio.run(scene())


def test_in_a_full_table_the_principal_with_most_makes_room() -> None:
    async def scene() -> None:
        table = Table(waiting_max=10)
        flood = await table.send(KEYS["one"], 12)
        assert ended(flood) == [False] * 10 + [True] * 2, "it has the table for itself"
        quiet = await table.send(KEYS["two"], 4)
        other = await table.send(KEYS["three"], 3)
        assert not any(ended([*quiet, *other]))
        assert ended(flood) == [False] * 3 + [True] * 9, "its newest ones are refused first"
        more = await table.send(KEYS["two"], 1)
        assert ended(more) == [True], "no principal makes room for one that has more"
        table.go.set()
        await asyncio.gather(*quiet, *other, *flood, *more, return_exceptions=True)
        assert not len(table.waiting)

    asyncio.run(scene())


def test_bytes_of_waiting_requests_are_bounded_and_shared() -> None:
    async def scene() -> None:
        table = Table(bytes_max=400)
        flood = [task for name in KEYS for task in await table.send(KEYS[name], 3, size=50)]
        assert ended(flood) == [False, False, True] * 3, "a quarter for each"
        await table.send(UUID(int=9), 2, size=50)
        (late,) = await table.send(UUID(int=10), size=50)
        assert not any(ended([late])), "principals with more make room"
        assert sum(ended(flood)) == 4
        table.go.set()
        await asyncio.gather(late, *flood, return_exceptions=True)

    asyncio.run(scene())


def test_a_wait_ends() -> None:
    async def scene() -> None:
        table = Table(seconds_max=0.01)
        sent = await table.send(KEYS["one"], 2)
        await async_wait_for(lambda: ended(sent) == [True, True], "the waits to end")
        assert not len(table.waiting)
        full = Place()
        full.is_full = True
        with pytest.raises(Overloaded):
            async with table.waiting.hold({PLACE: full}, KEYS["one"]):
                assert full.waits == 1

    asyncio.run(scene())


class Application:
    """Admits a request for the principal that its path names. `/<principal>/wait` waits, `/<principal>/<object>/release` ends."""

    def __init__(self) -> None:
        self.limits = PrincipalLimits(1_000, 1, RateLimits(dict.fromkeys(RequestClass, 10_000.0)))
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer once `go` is set, or at once on `/<principal>`."""
        principal = UUID(int=int(scope["path"].split("/")[1]))
        await self.limits.admit(scope, principal)
        if scope["path"].endswith("/wait"):
            async with self.limits.away(scope["state"], principal):
                await self.go.wait()
        elif scope["path"].count("/") > 1:
            await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("path", ["/1/0/release", "/1/wait"])
def test_one_principals_waiting_requests_leave_the_places_to_others(path: str) -> None:
    """The same objects' endings, and reads of a version that does not come."""

    async def scene() -> None:
        app = Application()
        edge = Edge(app, zone="test", body_bytes_max=1_024, in_flight_max=IN_FLIGHT_MAX)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test")
        attack = []
        for _ in range(10 * IN_FLIGHT_MAX):
            attack.append(asyncio.create_task(http.post(path)))
            await let_others_run(5)
        assert (await http.post("/2")).status_code == 200
        app.go.set()
        statuses = [answer.status_code for answer in await asyncio.gather(*attack)]
        assert not app.limits.principals
        assert statuses.count(200) >= IN_FLIGHT_MAX, "those that find a place afterwards are served"
        assert path.endswith("wait") or set(statuses) == {200}, "what ends something is never refused"

    asyncio.run(scene())


def test_few_principals_do_not_take_all_places() -> None:
    async def scene() -> None:
        app = Application()
        edge = Edge(app, zone="test", body_bytes_max=1_024, in_flight_max=IN_FLIGHT_MAX)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test")
        attack = []
        for principal in (1, 2, 1, 2):
            for _ in range(IN_FLIGHT_MAX):
                attack.append(asyncio.create_task(http.post(f"/{principal}/0")))
                await let_others_run(5)
        assert (await http.post("/3")).status_code == 200
        app.go.set()
        statuses = [answer.status_code for answer in await asyncio.gather(*attack)]
        assert set(statuses) == {200, 429}, "they are refused for what they have, and not for what others have"

    asyncio.run(scene())


def test_a_body_may_come_after_the_wait() -> None:
    """The time for a body does not run while its request waits for others, and nothing more of it is read."""
    body = b"x" * 200_000
    head = b"POST /held HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    with listening(body_seconds_max=0.5) as listener, listener.connect() as connection:
        connection.sendall(head + body[:1_000])
        began = time.monotonic()
        wait_for(lambda: listener.waiting == 1, "the request to wait")
        connection.sendall(body[1_000:])
        for _ in range(3):
            with listener.connect() as other:
                other.sendall(get("/"))
                assert other.recv(100).startswith(b"HTTP/1.1 200")
        assert listener.held_bytes() <= 1_000
        wait_for(lambda: time.monotonic() > began + 1.0, "the time for a body to be over")
        listener.release.set()
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert listener.received == len(body)


def _release(key: str, subject: str) -> bytes:
    return (
        f"POST /api/v1/allocations/{subject}/release HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {key}\r\n"
        f"idempotency-key: {uuid.uuid4()}\r\ncontent-length: 0\r\n\r\n"
    ).encode()


def _read(key: str, subject: str) -> bytes:
    return (
        f"GET /api/v1/allocations/{subject}?min_version={2**62} HTTP/1.1\r\nhost: here\r\n"
        f"authorization: Bearer {key}\r\n\r\n"
    ).encode()


@pytest.mark.quick("releases of one object")
@pytest.mark.parametrize("attack", [_release, _read], ids=["releases of one object", "reads of a version"])
def test_one_tenants_flood_leaves_another_served(database_url: str, tmp_path: Path, attack: Any) -> None:
    """Many more connections of a tenant than requests that a process serves at once."""
    settings = {
        "BERTH_REQUESTS_IN_FLIGHT_MAX": str(IN_FLIGHT_MAX), "BERTH_PRINCIPAL_ENDINGS_IN_FLIGHT_MAX": "1",
        "BERTH_MIN_VERSION_SECONDS_MAX": "30",
    }  # fmt: skip
    with public_process(database_url, tmp_path, settings) as http, ExitStack() as held:
        admin = Caller(http, insert_admin_key(database_url))
        hostile, quiet = new_tenant(admin), new_tenant(admin)
        subject = str(uuid.uuid4())
        # Reads go on, and a write waits as long as it may, as behind any lock of its row.
        held.enter_context(psycopg.connect(database_url)).execute("lock table operations in exclusive mode")
        address = (http.base_url.host, http.base_url.port or 0)
        statuses = []
        for number in range(4 * IN_FLIGHT_MAX):
            connection = held.enter_context(socket.create_connection(address, timeout=WAIT_SECONDS_MAX))
            connection.sendall(attack(hostile.key, subject))
            if number % 4 == 0:
                statuses.append(quiet.call("GET", "/allocations").status_code)
        wait_for(lambda: metric_of(http, WAITING) >= 2 * IN_FLIGHT_MAX, "the requests to wait")
        statuses += [quiet.call("GET", "/allocations").status_code for _ in range(20)]
        assert set(statuses) == {200}


def test_a_role_that_may_not_release_waits_for_nothing(database_url: str, tmp_path: Path) -> None:
    """It is refused before it takes a turn, at the rate of writes."""
    with public_process(database_url, tmp_path, {"BERTH_WRITES_PER_SECOND_MAX": "1"}) as http:
        admin = Caller(http, insert_admin_key(database_url))
        tenant = new_tenant(admin)
        body = {"name": "viewer", "role": "viewer", "tenant_id": tenant.tenant_id}
        viewer = Caller(http, admin.make("/admin/api-keys", body)["key"])
        for _ in range(4):
            refused = problem(viewer.call("POST", f"/allocations/{uuid.uuid4()}/release"), 403, "role_required")
            assert refused["role"] == "viewer"
        problem(viewer.call("POST", f"/allocations/{uuid.uuid4()}/release"), 429, "rate_limited")
        for _ in range(10):
            problem(tenant.call("POST", f"/allocations/{uuid.uuid4()}/release"), 404, "not_found")
