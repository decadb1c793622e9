"""A wrong or jumping wall clock changes neither the times in keys nor deadlines nor reported outcomes."""

from __future__ import annotations

import ast
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import berth.client
from berth import client as berth_client
from berth.client import Client, OperationKey, parse_key
from berth.client.calls.call import Call
from berth.client.requests.clocks import ServerClock, steady_seconds
from berth.client.requests.conversation import Pause, Send, converse, step_after
from berth.client.requests.exchange import Exchange
from berth.local.servers import LocalPostgres
from tests.berth.scripted import LOST, Reply, ScriptedServer
from tests.client.deployment import Deployment, Tenant, client_tenant, running_deployment
from tests.support.scripted_allocations import CREATED, ID, allocation, create

WRITE = Call("POST", "/api/v1/things", TypeAdapter(dict[str, int]), body={})
DAY_SECONDS = 86_400.0
SERVER_EPOCH_SECONDS = 2_000_000_000.0


@pytest.fixture
def mad_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read of the wall clock returns another year."""
    years = random.Random(7)
    monkeypatch.setattr(time, "time", lambda: years.uniform(0, 4e9))


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One API process for the module."""
    with running_deployment(postgres_server, migrated_template, tmp_path_factory.mktemp("clocks")) as running:
        yield running


@pytest.fixture(scope="module")
def tenant(deployment: Deployment) -> Iterator[Tenant]:
    """A tenant of the module's."""
    with client_tenant(deployment, asynchronous=False) as made:
        yield made


@pytest.mark.usefixtures("mad_clock")
def test_keys_hold_the_servers_time_and_retries_end_on_time() -> None:
    began = steady_seconds()

    def server_seconds() -> float:
        return SERVER_EPOCH_SECONDS + steady_seconds() - began

    answers = [LOST, Reply(201, CREATED)] * 5
    with ScriptedServer(answers, server_seconds) as server, Client(server.address, retry_seconds=30.0) as client:
        for _ in range(5):
            create(client)
        last = server_seconds()
    times = [key.created_at_seconds for key in map(parse_key, [asked.key or "" for asked in server.asked]) if key]
    assert len(times) == len(server.asked) == 10
    assert times == sorted(times)
    assert SERVER_EPOCH_SECONDS - 1 <= times[0] <= times[-1] <= last


@pytest.mark.usefixtures("mad_clock")
def test_a_wait_ends_neither_early_nor_never() -> None:
    with ScriptedServer([Reply(200, allocation("provisioning"))]) as server, Client(server.address) as client:
        began = steady_seconds()
        with pytest.raises(berth_client.WaitTimeout):
            client.wait_for(ID, {"active"}, 0.3)
        assert steady_seconds() - began >= 0.3


@pytest.mark.usefixtures("mad_clock")
def test_a_real_servers_time_is_in_the_key(deployment: Deployment) -> None:
    before = deployment.count("select floor(extract(epoch from clock_timestamp()))")
    with Client(deployment.address, deployment.admin.key) as client:
        key = parse_key(client.new_idempotency_key())
    after = deployment.count("select floor(extract(epoch from clock_timestamp()))")
    assert key is not None
    # `Date` is cut to whole seconds, and drawn once a second.
    assert before - 2 <= key.created_at_seconds <= after


@pytest.mark.usefixtures("mad_clock")
def test_the_status_of_an_old_key_is_queried_and_the_write_not_sent(deployment: Deployment, tenant: Tenant) -> None:
    now = deployment.count("select floor(extract(epoch from clock_timestamp()))")
    old = str(OperationKey("c", 1, "0" * 16, now - int(2 * DAY_SECONDS)))
    young = str(OperationKey("c", 2, "0" * 16, now - int(DAY_SECONDS / 2)))
    made = "select count(*) from allocations where operation_key = %s"
    assert tenant.create(idempotency_key=young).status == "requested"
    with pytest.raises(berth_client.OutcomeUnknown, match="no longer kept") as raised:
        tenant.create(idempotency_key=old)
    assert raised.value.idempotency_key == old
    assert [deployment.count(made, key) for key in (old, young)] == [0, 1]


@pytest.mark.usefixtures("mad_clock")
def test_an_old_key_of_an_existing_allocation_returns_it(deployment: Deployment, tenant: Tenant) -> None:
    now = deployment.count("select floor(extract(epoch from clock_timestamp()))")
    old = str(OperationKey("c", 3, "0" * 16, now - int(2 * DAY_SECONDS)))
    made = tenant.caller.call(
        "POST",
        "/allocations",
        {"sku": tenant.place.sku, "gpus": 1, "region": tenant.place.region, "ssh_key_ids": [str(tenant.ssh_key_id)]},
        key=old,
    ).json()
    deployment.database.execute("delete from operations where key = %s", (old,))
    assert str(tenant.create(idempotency_key=old).allocation_id) == made["allocation_id"]


def test_after_a_long_sleep_of_the_machine_no_write_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    for module in ("conversation", "clocks"):
        monkeypatch.setattr(f"berth.client.requests.{module}.steady_seconds", lambda: now)
    first = datetime(2026, 3, 1, tzinfo=UTC)
    exchange = Exchange("http://berth.invalid", None, client_id="c", retry_seconds=10 * DAY_SECONDS)
    exchange.clock.learn(f"{first:%a, %d %b %Y %H:%M:%S} GMT")
    talk = converse(exchange, WRITE)
    sent = step_after(talk, None)
    assert isinstance(sent, Send)
    pause = step_after(talk, httpx.ReadError("the machine was put to sleep"))
    assert isinstance(pause, Pause)
    now += 2 * DAY_SECONDS
    asked = step_after(talk, None)
    assert isinstance(asked, Send)
    assert asked.arguments["method"] == "GET"
    assert asked.arguments["params"] == {"since": first.isoformat()}
    key = sent.arguments["headers"]["Idempotency-Key"]
    with pytest.raises(berth_client.OutcomeUnknown) as raised:
        step_after(talk, httpx.Response(200, json={"key": key, "state": "retired"}))
    assert raised.value.idempotency_key == key


@given(st.text() | st.datetimes().map(str) | st.sampled_from(["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 99 Nov 1994"]))
def test_any_date_header_is_accepted(date: str) -> None:
    clock = ServerClock()
    clock.learn(date)
    clock.learn(None)
    assert isinstance(clock.now_seconds(), float)


def test_the_servers_time_is_extrapolated_by_the_steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock()
    known = [clock.known]
    told = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    clock.learn("Tue, 06 May 2031 07:08:09 GMT")
    assert [*known, clock.known] == [False, True]
    steady = steady_seconds()
    monkeypatch.setattr("berth.client.requests.clocks.steady_seconds", lambda: steady + 3600)
    assert abs(clock.now_seconds() - (told + timedelta(hours=1)).timestamp()) < 5


def test_no_other_module_of_the_client_reads_a_clock() -> None:
    looks = []
    for path in Path(berth.client.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("time", "monotonic", "now", "utcnow", "perf_counter"):
                looks.append(path.name)
    assert set(looks) == {"clocks.py"}
