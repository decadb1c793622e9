"""An API key given as a function is requested before every attempt, by both clients, and must fit a header."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from berth import client as berth
from berth.cli.endings import ending_of
from berth.client import AsyncClient, Client
from tests.berth.scripted import LOST, Reply, ScriptedServer, problem

EMPTY = Reply(200, {"items": [], "next_cursor": None})


def sent_keys(server: ScriptedServer) -> list[str | None]:
    return [asked.headers.get("authorization") for asked in server.asked]


def test_each_attempt_carries_the_key_that_the_function_returns_then() -> None:
    numbers = itertools.count(1)
    with (
        ScriptedServer([LOST, problem(503, "issuer_unavailable"), EMPTY]) as server,
        Client(server.address, lambda: f"token-{next(numbers)}") as client,
    ):
        client.list_skus()
        client.list_skus()
    assert sent_keys(server) == [f"Bearer token-{n}" for n in (1, 2, 3, 4)]


def test_the_asynchronous_client_takes_both_kinds_of_function() -> None:
    async def coroutine() -> str:
        return await asyncio.to_thread(lambda: "awaited")

    async def ask(server: ScriptedServer, key: Any) -> None:
        async with AsyncClient(server.address, key) as client:
            await client.list_skus()

    with ScriptedServer([EMPTY]) as server:
        for key in (coroutine, lambda: "plain", "fixed"):
            asyncio.run(ask(server, key))
    assert sent_keys(server) == ["Bearer awaited", "Bearer plain", "Bearer fixed"]


@pytest.mark.parametrize("answered", ["", "two\nlines", "t\u00fcr"])
def test_a_key_that_no_header_can_carry_is_refused_before_sending(answered: str) -> None:
    with (
        ScriptedServer([EMPTY]) as server,
        Client(server.address, lambda: answered) as client,
        pytest.raises(berth.Unauthenticated),
    ):
        client.list_skus()
    assert server.asked == []


def test_an_error_of_the_key_function_reaches_the_caller() -> None:
    def fail() -> str:
        raise LookupError("no token today")

    with (
        ScriptedServer([EMPTY]) as server,
        Client(server.address, fail) as client,
        pytest.raises(LookupError, match="no token today"),
    ):
        client.list_skus()
    assert server.asked == []


def test_secret_not_shown_again_is_a_definite_outcome() -> None:
    refusal = problem(409, "secret_not_shown_again", outcome="unknown", answer={"id": "the-first"})
    with (
        ScriptedServer([refusal]) as server,
        Client(server.address, lambda: "token") as client,
        pytest.raises(berth.SecretNotShownAgain) as raised,
    ):
        client.create_api_key(name="n", role="admin")
    ending = ending_of(raised.value)
    assert ending is not None
    assert ending.detail.endswith("create another one with a new idempotency key, and revoke the-first")
    assert (ending.exit_code, raised.value.extra["answer"]) == (1, {"id": "the-first"})


@pytest.mark.parametrize("code", ["token_expired", "token_invalid", "token_not_yet_valid", "tenant_not_active"])
def test_a_refused_token_is_not_sent_again(code: str) -> None:
    with (
        ScriptedServer([problem(401, code)]) as server,
        Client(server.address, lambda: "token") as client,
        pytest.raises(berth.Unauthenticated) as raised,
    ):
        client.list_skus()
    assert (raised.value.code, len(server.asked)) == (code, 1)
