"""One principal cannot take the requests in flight of a process; what ends something waits and is never refused."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.process.keyed_turns import KeyedTurns
from orchestrator.edge.edge import Edge
from orchestrator.edge.node_limits import NodeLimits
from orchestrator.http.asgi import Receive, Scope, Send, State
from orchestrator.http.principal_limits import ON_RESPONSE, REPEATING_SHARE, REPETITIONS_MAX, PrincipalLimits
from orchestrator.http.rate_limits import RateLimits, RequestClass
from orchestrator.http.services import ENDING_VERB, TAKE_TURN
from orchestrator.problems import Problem
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.support.waiting import WAIT_SECONDS_MAX, let_others_run, wait_for

ONE, OTHER = UUID(int=1), UUID(int=2)
IN_FLIGHT_MAX, ENDINGS_MAX = 3, 2


class Application:
    """Admits each request for the principal that its path names, and answers it once it is let go."""

    def __init__(self) -> None:
        self.limits = PrincipalLimits(IN_FLIGHT_MAX, ENDINGS_MAX, RateLimits(dict.fromkeys(RequestClass, 1_000.0)))
        self.admitted: list[str] = []
        self.go: dict[str, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/<principal>/<object>/<verb>`."""
        path: str = scope["path"]
        for _ in range(2):  # the fast path and the endpoint both ask
            await self.limits.admit(scope, UUID(int=int(path.split("/")[1])))
        self.admitted.append(path)
        go = self.go.setdefault(path, asyncio.Event())
        await go.wait()
        if "broken" in path:
            raise Problem("it failed")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def let_go(self, path: str) -> None:
        """Let requests to this path be answered."""
        self.go.setdefault(path, asyncio.Event()).set()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await let_others_run()


class Clients:
    """Requests to an application behind the edge."""

    def __init__(self) -> None:
        self.app = Application()
        edge = Edge(self.app, zone="test", body_bytes_max=1_024, in_flight_max=100)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test")

    async def post(self, *paths: str) -> list[asyncio.Task[httpx.Response]]:
        """Send requests at once, and let what can run."""
        sent = [asyncio.create_task(self.http.post(path)) for path in paths]
        await settle()
        return sent


def test_a_principal_at_its_bound_is_refused_and_others_notice_nothing() -> None:
    async def scene() -> None:
        clients = Clients()
        held = await clients.post(*(f"/1/{number}/create" for number in range(IN_FLIGHT_MAX)), "/1/broken/create")
        refused = held.pop().result()
        assert not any(one.done() for one in held), "each counts once"
        document = problem(refused, 429, "concurrency_limited")
        assert document["outcome"] == "not_done"
        assert refused.headers["retry-after"] == "1"
        (other,) = await clients.post("/2/0/create")
        clients.app.let_go("/2/0/create")
        assert (await other).status_code == 200
        clients.app.let_go("/1/0/create")
        assert (await held[0]).status_code == 200
        (again,) = await clients.post("/1/broken/create")
        clients.app.let_go("/1/broken/create")
        assert (await again).status_code == 500
        for number in range(IN_FLIGHT_MAX):
            clients.app.let_go(f"/1/{number}/create")
            await held[number]
        assert not clients.app.limits.principals, "no entry is kept for a principal without requests"

    asyncio.run(scene())


def test_what_ends_something_waits_and_is_not_refused() -> None:
    async def scene() -> None:
        clients = Clients()
        held = await clients.post(*(f"/1/{number}/create" for number in range(IN_FLIGHT_MAX)))
        paths = [f"/1/{number}/release" for number in range(20)]
        releases = await clients.post(*paths, "/2/0/release")
        assert clients.app.admitted[IN_FLIGHT_MAX:] == [*paths[:ENDINGS_MAX], "/2/0/release"]
        for path in [*paths, "/2/0/release"]:
            clients.app.let_go(path)
        assert {answer.status_code for answer in await asyncio.gather(*releases)} == {200}
        for number, one in enumerate(held):
            clients.app.let_go(f"/1/{number}/create")
            await one
        assert not clients.app.limits.principals

    asyncio.run(scene())


def test_repetitions_for_one_object_are_served_one_at_a_time() -> None:
    async def scene() -> None:
        clients = Clients()
        repeated = await clients.post(*["/1/0/release"] * 50, "/1/1/release")
        assert clients.app.admitted == ["/1/0/release", "/1/1/release"], "they take no turn of another object"
        clients.app.let_go("/1/0/release")
        clients.app.let_go("/1/1/release")
        assert {answer.status_code for answer in await asyncio.gather(*repeated)} == {200}

    asyncio.run(scene())


def test_requests_with_keys_are_served_one_at_a_time() -> None:
    """Those without pass, a bounded number at once, and take their turn with the operation that they share."""

    async def scene() -> None:
        limits = PrincipalLimits(IN_FLIGHT_MAX, ENDINGS_MAX, RateLimits(dict.fromkeys(RequestClass, 1_000.0)))
        states: list[State] = []

        def send(path: str, *headers: tuple[bytes, bytes]) -> asyncio.Task[None]:
            states.append({ENDING_VERB: "release", ON_RESPONSE: []})
            scope = {"path": path, "method": "POST", "headers": headers, "state": states[-1]}
            return asyncio.create_task(limits.admit(scope, ONE))

        one, other = "/api/v1/allocations/1/release", "/api/v1/allocations/2/release"
        keyed = [send(one, (b"idempotency-key", b"a")), send(one, (b"idempotency-key", b"b"))]
        await settle()
        assert [task.done() for task in keyed] == [True, False]
        without = [send(other) for _ in range(REPETITIONS_MAX)]
        await settle()
        passed = REPEATING_SHARE * ENDINGS_MAX
        assert [task.done() for task in without] == [True] * passed + [False] * (REPETITIONS_MAX - passed)
        turns = [asyncio.create_task(states[2 + number][TAKE_TURN]()) for number in range(passed)]
        await settle()
        assert [turn.done() for turn in turns] == [True] + [False] * (passed - 1), "one of an object at a time"
        sent = [*keyed, *without, *turns]
        while not all(task.done() for task in sent):
            for state in states:
                while state[ON_RESPONSE]:
                    state[ON_RESPONSE].pop()()
            await settle()
        for state in states:
            while state[ON_RESPONSE]:
                state[ON_RESPONSE].pop()()
        assert not limits.principals

    asyncio.run(scene())


def test_a_node_is_limited_before_its_body_arrives() -> None:
    async def scene() -> None:
        reading = 0

        async def reads(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal reading
            reading += 1
            while (await receive()).get("more_body", False):
                pass

        node = uuid.uuid4()
        limits = PrincipalLimits(IN_FLIGHT_MAX, ENDINGS_MAX, RateLimits(dict.fromkeys(RequestClass, 1_000.0)))
        edge = Edge(
            NodeLimits(reads, limits, "berth.local", frozenset({"/ok"})), zone="node", body_bytes_max=1_024,
            in_flight_max=1_000,
        )  # fmt: skip
        answered: list[int] = []

        async def heartbeat(names: tuple[tuple[str, str], ...]) -> None:
            peer = {"subjectAltName": names, "serialNumber": "0A"}
            scope: dict[str, Any] = {
                "type": "http", "method": "POST", "path": "/node/v1/heartbeat", "headers": [], "query_string": b"",
                "state": {"peer": peer},
            }  # fmt: skip

            async def receive() -> dict[str, Any]:
                await asyncio.Event().wait()
                raise AssertionError("the body never comes")

            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    answered.append(message["status"])

            await edge(scope, receive, send)

        own = (("URI", f"spiffe://berth.local/node/{node}"),)
        other = (("URI", f"spiffe://berth.local/node/{uuid.uuid4()}"),)
        sent = [asyncio.create_task(heartbeat(own)) for _ in range(500)]
        await settle()
        assert (reading, answered) == (IN_FLIGHT_MAX, [429] * (500 - IN_FLIGHT_MAX))
        sent.append(asyncio.create_task(heartbeat(other)))
        await settle()
        assert reading == IN_FLIGHT_MAX + 1, "another node's heartbeat is read"
        for one in sent:
            one.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
        assert not limits.principals

    asyncio.run(scene())


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40), st.integers(1, 3))
def test_turns_are_given_in_order_and_none_is_lost(asked: list[tuple[int, bool]], turns_max: int) -> None:
    """Any callers of three keys, some cancelled while they wait."""

    async def scene() -> None:
        turns: KeyedTurns[int] = KeyedTurns(turns_max)
        holding: dict[int, list[int]] = {0: [], 1: [], 2: []}
        served: dict[int, list[int]] = {0: [], 1: [], 2: []}

        async def hold(number: int, key: int) -> None:
            await turns.take(key)
            holding[key].append(number)
            served[key].append(number)
            assert len(holding[key]) <= turns_max
            await let_others_run()
            holding[key].remove(number)
            turns.give_back(key)

        holders = [asyncio.create_task(hold(number, key)) for number, (key, _) in enumerate(asked)]
        await let_others_run()
        for one, (_, goes) in zip(holders, asked, strict=True):
            if goes and not one.done() and served_none(one, holding, asked, holders):
                one.cancel()
        await asyncio.gather(*holders, return_exceptions=True)
        assert len(turns) == 0
        for key in served:
            assert served[key] == sorted(served[key])

    def served_none(
        one: asyncio.Task[None], holding: dict[int, list[int]], asked: list[tuple[int, bool]],
        holders: list[asyncio.Task[None]],
    ) -> bool:  # fmt: skip
        number = holders.index(one)
        return number not in holding[asked[number][0]]

    asyncio.run(scene())


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with public_process(database_url, tmp_path, {"BERTH_PRINCIPAL_IN_FLIGHT_MAX": "5"}) as http:
        yield http


def test_a_tenant_at_its_bound_in_a_real_process(api: httpx.Client, database_url: str) -> None:
    """Half-sent bodies of a tenant take its places, and none of another's."""
    admin = Caller(api, insert_admin_key(database_url))
    hostile, quiet = new_tenant(admin), new_tenant(admin)
    address = (api.base_url.host, api.base_url.port or 0)
    half = (
        f"POST /api/v1/allocations HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {hostile.key}\r\n"
        "content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n{"
    ).encode()
    with ExitStack() as held:
        for _ in range(5):
            connection = held.enter_context(socket.create_connection(address, timeout=WAIT_SECONDS_MAX))
            connection.sendall(half)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 100 "), "it is admitted, and its body is awaited"
        problem(hostile.call("GET", "/skus"), 429, "concurrency_limited")
        problem(hostile.call("POST", "/ssh-keys", {}), 429, "concurrency_limited")
        problem(hostile.call("POST", f"/allocations/{uuid.uuid4()}/release"), 404, "not_found")
        assert quiet.call("GET", "/allocations").status_code == 200
    wait_for(lambda: hostile.call("GET", "/allocations").status_code == 200, "the places to be free again")
