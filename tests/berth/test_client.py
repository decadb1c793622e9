"""The client: one key per write for all attempts, named errors, true outcomes, paging, waiting."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth import client as berth
from berth.client import AsyncClient, Client
from berth.client.problems import BY_CODE, error_from_problem
from berth.local.servers import free_port
from tests.berth.scripted import LOST, Reply, ScriptedServer
from tests.support.scripted_allocations import CREATED, ID, allocation, create


def problem(status: int, code: str, outcome: str = "not_done", **more: object) -> Reply:
    body = {"type": "t", "title": "T", "status": status, "code": code, "detail": "d", "outcome": outcome, **more}
    return Reply(status, body)


@contextmanager
def connected(*answers: Reply, retry_seconds: float = 30.0) -> Iterator[tuple[ScriptedServer, Client]]:
    """A server that answers so, and a client of it."""
    with ScriptedServer(answers) as server, Client(server.address, retry_seconds=retry_seconds) as client:
        yield server, client


TROUBLE = [
    problem(503, "database_unavailable"),
    problem(503, "overloaded"),
    problem(503, "outcome_unknown", "unknown"),
    problem(409, "operation_in_progress", "in_progress"),
    LOST,
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda t: "lost" if t.lost else t.body["code"])
def test_a_write_is_repeated_with_its_first_key(trouble: Reply) -> None:
    with connected(trouble, trouble, Reply(201, CREATED)) as (server, client):
        assert create(client).allocation_id == ID
    keys = {asked.key for asked in server.asked}
    assert len(server.asked) == 3
    assert len(keys) == 1
    assert None not in keys
    assert len({repr(asked.body) for asked in server.asked}) == 1


def test_each_write_has_the_next_key_of_its_client() -> None:
    with connected(Reply(201, CREATED)) as (server, client):
        for _ in range(3):
            create(client)
        create(client, idempotency_key="mine")
        create(client, idempotency_key=client.new_idempotency_key())
    keys = [asked.key or "" for asked in server.asked]
    assert keys.pop(3) == "mine"
    parsed = [berth.parse_key(key) for key in keys]
    assert [key and key.sequence for key in parsed] == [1, 2, 3, 4]
    assert len({(key.client_id, key.nonce) for key in parsed if key is not None}) == 1


def test_a_read_carries_no_key_and_is_repeated() -> None:
    with connected(LOST, Reply(200, allocation("active"))) as (server, client):
        assert client.get_allocation(ID).status == "active"
    assert [asked.key for asked in server.asked] == [None, None]


@pytest.mark.parametrize("code", sorted(BY_CODE.keys() - {"approval_requested"}))  # no problem document has it
def test_every_code_is_a_named_error(code: str) -> None:
    answer = problem(418, code, reason="busy_now", state="released")
    with connected(answer, retry_seconds=0) as (server, client), pytest.raises(BY_CODE[code]) as raised:
        create(client)
    assert (raised.value.code, raised.value.status, raised.value.detail) == (code, 418, "d")
    assert raised.value.extra["reason"] == "busy_now"
    assert raised.value.extra["idempotency_key"] == server.asked[0].key
    assert type(raised.value) is not berth.BerthError


@pytest.mark.parametrize("code", ["sku_unavailable", "quota_exceeded", "operation_conflict", "invalid", "not_found"])
def test_a_definite_refusal_is_not_repeated(code: str) -> None:
    with connected(problem(409, code)) as (server, client), pytest.raises(BY_CODE[code]):
        create(client)
    assert len(server.asked) == 1


def test_a_refusal_for_quota_has_its_numbers_where_they_are_of_gpus() -> None:
    gpus = problem(409, "quota_exceeded", gpus_used=6, gpus_limit=8)
    with connected(gpus, problem(409, "quota_exceeded")) as (_, client):
        with pytest.raises(berth.QuotaExceeded) as raised:
            create(client)
        assert (raised.value.gpus_used, raised.value.gpus_limit) == (6, 8)
        with pytest.raises(berth.QuotaExceeded) as raised:
            create(client)
        assert (raised.value.gpus_used, raised.value.gpus_limit) == (None, None)


def test_retry_after_is_obeyed_or_the_request_given_up() -> None:
    answer = Reply(503, {"code": "overloaded", "outcome": "not_done"}, {"Retry-After": "3600"})
    with connected(answer) as (server, client), pytest.raises(berth.Overloaded) as raised:
        create(client)
    assert raised.value.retry_after_seconds == 3600
    assert len(server.asked) == 1


def test_an_unreachable_server_means_not_done() -> None:
    unconnected = Client(f"http://127.0.0.1:{free_port()}", retry_seconds=0)
    with unconnected, pytest.raises(berth.Unavailable) as raised:
        create(unconnected)
    assert (raised.value.code, raised.value.outcome) == ("unreachable", "not_done")


def test_a_lost_answer_is_an_unknown_outcome_with_its_key() -> None:
    with (
        connected(LOST, retry_seconds=0) as (server, client),
        pytest.raises(berth.OutcomeUnknown) as raised,
    ):
        create(client)
    assert raised.value.outcome == "unknown"
    assert raised.value.extra["idempotency_key"] == server.asked[0].key


def test_after_an_unknown_outcome_an_overload_error_does_not_mean_not_done() -> None:
    # Retry-After of an hour ends the retrying at the second answer.
    busy = Reply(503, {"code": "overloaded", "outcome": "not_done", "detail": "d"}, {"Retry-After": "3600"})
    with connected(LOST, busy) as (server, client), pytest.raises(berth.OutcomeUnknown):
        create(client)
    assert [asked.method for asked in server.asked] == ["POST", "POST", "GET"]
    assert server.asked[2].path.startswith("/api/v1/operations/")


def test_an_unreadable_response_is_a_named_error() -> None:
    with connected(Reply(201, {"hello": "world"})) as (_server, client), pytest.raises(berth.BerthError) as raised:
        create(client)
    assert raised.value.code == "unreadable_answer"
    assert raised.value.outcome == "unknown"


def test_lists_are_followed_to_their_last_page() -> None:
    pages = [{"items": [{"name": n, "display_name": n}], "next_cursor": c} for n, c in (("a", "x/y"), ("b", None))]
    with connected(*(Reply(200, page) for page in pages)) as (server, client):
        assert [region.name for region in client.iterate_regions(limit=1)] == ["a", "b"]
    assert [asked.path for asked in server.asked] == ["/api/v1/regions?limit=1", "/api/v1/regions?limit=1&cursor=x%2Fy"]


def test_waiting_reports_every_response_until_the_state_is_reached() -> None:
    states = ["requested", "provisioning", "active"]
    seen: list[str] = []
    with connected(*(Reply(200, allocation(state)) for state in states)) as (_server, client):
        found = client.wait_for(ID, {"active"}, 30, progress=lambda answer: seen.append(answer.status))
    assert found.status == "active"
    assert seen == states


def test_waiting_ends_when_the_state_is_unreachable() -> None:
    failed = allocation("failed", failure={"code": "lease_conflict", "detail": "slot 3"})
    with (
        connected(Reply(200, failed)) as (_server, client),
        pytest.raises(berth.StateUnreachable, match="lease_conflict"),
    ):
        client.wait_for(ID, {"active"}, 30)


def test_waiting_ends_at_its_timeout() -> None:
    with (
        connected(Reply(200, allocation("provisioning"))) as (_server, client),
        pytest.raises(berth.WaitTimeout) as raised,
    ):
        client.wait_for(ID, {"active"}, 0.01)
    assert raised.value.extra["state"] == "provisioning"


def test_the_asynchronous_client_does_the_same() -> None:
    async def play(address: str) -> tuple[str, list[str]]:
        async with AsyncClient(address) as client:
            made = await client.create_allocation(sku="s", gpus=1, region="eu-1", ssh_key_ids=[ID])
            found = await client.wait_for(made.allocation_id, {"active"}, 30)
            return found.status, [region.name async for region in client.iterate_regions()]

    answers = (
        LOST, Reply(201, CREATED), Reply(200, allocation("active")),
        Reply(200, {"items": [{"name": "a", "display_name": "A"}]}),
    )  # fmt: skip
    with ScriptedServer(answers) as server:
        assert asyncio.run(play(server.address)) == ("active", ["a"])
    assert server.asked[0].key == server.asked[1].key


def test_both_clients_have_the_same_methods() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        found = {name: member for name, member in vars(of).items() if not name.startswith("_") and callable(member)}
        return {name: list(inspect.signature(member).parameters) for name, member in found.items()}

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 40


@given(
    status=st.integers(400, 599),
    body=st.dictionaries(
        st.sampled_from(["code", "detail", "outcome", "title", "errors", "x"]), st.text() | st.integers()
    ),
    retry_after=st.none() | st.text(max_size=8) | st.text("0123456789.²٣", max_size=8),
)
def test_any_problem_becomes_an_error(status: int, body: dict[str, Any], retry_after: str | None) -> None:
    error = error_from_problem(status, body, retry_after)
    assert error.outcome
    assert error.retry_after_seconds is None or error.retry_after_seconds >= 0
    assert error.status == status
