"""Calls that start together on a new client ask the server for its time once, not once each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from pydantic import TypeAdapter

from berth.client import AsyncClient, Client, Unavailable
from berth.client.calls.call import Call
from berth.client.requests.conversation import Done, Join, Send, converse, draw_key, step_after
from berth.client.requests.exchange import Exchange
from tests.support.waiting import async_wait_for, wait_for

WRITES = 20
WRITE = Call("POST", "/api/v1/things", TypeAdapter(dict[str, int]), body={})
DATE = {"Date": "Tue, 06 May 2031 07:08:09 GMT"}


class Server:
    """Answers every request and counts those for the time."""

    def __init__(self) -> None:
        self.time_questions = 0
        self.writes = 0
        self.joined = 0
        self._lock = threading.Lock()

    def handle(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            if request.url.path == "/ok":
                self.time_questions += 1
            else:
                self.writes += 1
        return httpx.Response(200, headers=DATE, json={})

    async def handle_async(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/ok":
            await async_wait_for(lambda: self.joined == WRITES, "every call to start", 10)
        return self.handle(request)

    def count_joined(self, exchange: Exchange) -> None:
        """Count in `joined` the calls that have asked for the open question."""
        join = exchange.join_time_question

        def counted() -> tuple[Future[bool], bool]:
            found = join()
            with self._lock:
                self.joined += 1
            return found

        exchange.join_time_question = counted  # type: ignore[method-assign]


def test_calls_of_an_asynchronous_client_share_one_question() -> None:
    server = Server()

    async def write_at_once() -> None:
        async with AsyncClient("https://berth.invalid", "k", client_id="c") as client:
            server.count_joined(client.exchange)
            client._http = httpx.AsyncClient(
                base_url="http://berth.invalid", transport=httpx.MockTransport(server.handle_async)
            )
            await asyncio.gather(*(client.run(WRITE) for _ in range(WRITES)))

    asyncio.run(write_at_once())
    assert (server.time_questions, server.writes) == (1, WRITES)


def test_threads_that_use_one_client_share_one_question() -> None:
    server = Server()
    all_started = threading.Barrier(WRITES)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/ok":
            wait_for(lambda: server.joined == WRITES, "every call to start", 10)
        return server.handle(request)

    with Client("https://berth.invalid", "k", client_id="c") as client, ThreadPoolExecutor(WRITES) as threads:
        server.count_joined(client.exchange)
        client._http = httpx.Client(base_url="http://berth.invalid", transport=httpx.MockTransport(handle))

        def write() -> None:
            all_started.wait()
            client.run(WRITE)

        for done in [threads.submit(write) for _ in range(WRITES)]:
            done.result()
    assert (server.time_questions, server.writes) == (1, WRITES)


def _join(exchange: Exchange) -> tuple[Callable[[], object], Join]:
    """Start a call that waits for the open question; returns the function that resumes it, and its step."""
    talk = converse(exchange, WRITE)
    step = step_after(talk, None)
    assert isinstance(step, Join)
    return lambda: step_after(talk, None), step


def test_a_call_asks_for_itself_where_the_shared_question_failed() -> None:
    exchange = Exchange("http://berth.invalid", None, client_id="c", retry_seconds=0.0)
    first = draw_key(exchange)
    assert isinstance(step_after(first, None), Send)
    go_on, waiting = _join(exchange)
    with pytest.raises(Unavailable):
        step_after(first, httpx.ConnectError("refused"))
    assert waiting.question.result(0) is False
    asked = go_on()
    assert isinstance(asked, Send)
    assert asked.arguments["url"] == "/ok"


def test_a_call_that_is_cancelled_lets_the_others_go_on() -> None:
    exchange = Exchange("http://berth.invalid", None, client_id="c")
    first = draw_key(exchange)
    assert isinstance(step_after(first, None), Send)
    go_on, waiting = _join(exchange)
    with pytest.raises(KeyboardInterrupt):
        first.throw(KeyboardInterrupt())
    assert waiting.question.result(0) is False
    assert isinstance(go_on(), Send)
    assert exchange.time_question is None


def test_a_call_does_not_ask_again_when_a_busy_server_left_the_shared_question_open() -> None:
    exchange = Exchange("http://berth.invalid", None, client_id="c")
    first = draw_key(exchange)
    assert isinstance(step_after(first, None), Send)
    go_on, waiting = _join(exchange)
    assert isinstance(step_after(first, httpx.ReadTimeout("busy")), Done)
    assert waiting.question.result(0) is True
    sent = go_on()
    assert isinstance(sent, Send)
    assert sent.arguments["method"] == "POST"


def test_a_question_that_is_never_closed_is_waited_for_no_longer_than_a_question_may_take() -> None:
    """A process forked while another thread asked inherits the question, but not the thread."""
    exchange = Exchange("http://berth.invalid", None, client_id="c", retry_seconds=3.0)
    exchange.time_question = Future()
    go_on, waiting = _join(exchange)
    assert waiting.seconds_max == 5.0
    asked = go_on()
    assert isinstance(asked, Send)
    assert asked.arguments["url"] == "/ok"
