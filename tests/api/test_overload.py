"""At the bound new work is refused by name, and what ends something is never what is shed (P13; failure 16)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from orchestrator.edge.edge import Edge
from orchestrator.http.asgi import Receive, Scope, Send


class Busy:
    """An application whose requests last until they are let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 once let go."""
        self.began.set()
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/v1/allocations", 503),
        ("POST", "/api/v1/reservations", 503),
        ("GET", "/api/v1/skus", 503),
        ("GET", "/api/v1/operations/release", 503),
        ("GET", "/api/v1/operations/order-17/confirm", 503),
        ("GET", "/api/v1/resources/cancel", 503),
        ("POST", "/api/v1/allocations/1/release", 200),
        ("POST", "/api/v1/admin/allocations/1/force-release", 200),
        ("POST", "/api/v1/reservations/1/cancel", 200),
        ("POST", "/api/v1/reservations/1/confirm", 200),
        ("POST", "/node/v1/tasks/1/result", 200),
        ("GET", "/ok", 200),
        ("GET", "/live", 200),
    ],
)
def test_only_what_ends_something_is_never_shed(method: str, path: str, status: int) -> None:
    async def scene() -> httpx.Response:
        busy = Busy()
        edge = Edge(busy, zone="test", body_bytes_max=1024, in_flight_max=1)
        transport = httpx.ASGITransport(edge)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            first = asyncio.create_task(http.get("/api/v1/skus"))
            await busy.began.wait()
            busy.began.clear()
            second = asyncio.create_task(http.request(method, path))
            if status == 200:
                await busy.began.wait()
                busy.go.set()
            answer = await second
            busy.go.set()
            assert (await first).status_code == 200
            assert (await http.get("/api/v1/skus")).status_code == 200, "the bound is free again"
            return answer

    answer = asyncio.run(asyncio.wait_for(scene(), 10))
    assert answer.status_code == status
    if status == 503:
        assert (answer.json()["code"], answer.json()["outcome"]) == ("overloaded", "not_done")
        assert answer.headers["retry-after"] == "1"


def test_half_a_body_gives_its_place_back() -> None:
    async def scene() -> httpx.Response:
        async def reads_body(scope: Scope, receive: Receive, send: Send) -> None:
            while (await receive()).get("more_body", False):
                pass
            raise AssertionError("the body never came whole")

        async def half_a_body() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        edge = Edge(reads_body, zone="test", body_bytes_max=1024, in_flight_max=1, body_seconds_max=0.01)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test") as http:
            return await http.post("/api/v1/allocations", content=half_a_body())

    answer = asyncio.run(asyncio.wait_for(scene(), 10))
    assert (answer.status_code, answer.json()["code"]) == (408, "request_timeout")
    assert answer.json()["outcome"] == "not_done"


def test_an_answer_may_take_longer_than_a_body() -> None:
    async def scene() -> httpx.Response:
        async def answers_late(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            with contextlib.suppress(TimeoutError):  # what a waiting endpoint does to notice that its client went away
                await asyncio.wait_for(receive(), 0.05)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        edge = Edge(answers_late, zone="test", body_bytes_max=1024, in_flight_max=1, body_seconds_max=0.01)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://test") as http:
            return await http.post("/api/v1/allocations", content=b"{}")

    assert asyncio.run(scene()).status_code == 200
