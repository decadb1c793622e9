"""The gate in real processes: duplicates cost no statement, two processes and a restart give the same guarantees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres, free_port, new_password
from migrations.roles import Role
from tests.api.calling import Caller, at_once, fresh, insert_admin_key, new_place, new_tenant, one_gpu, problem, ssh_key
from tests.api.processes import metric_of, public_process
from tests.databases import copied_database
from tests.support.waiting import wait_for

TRUSTING = {"BERTH_CREDENTIAL_CACHE_SECONDS": "600"}
"""So that a request needs no statement to authenticate its sender."""


def repeated(first: httpx.Response, again: httpx.Response) -> None:
    """The second is the first once more, and says so."""
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.full
def test_duplicates_are_answered_while_the_database_is_away(server_directory: Path, tmp_path: Path) -> None:
    """Every kind of write, on the short way of creates and on the long one, and a key used for something else."""
    server = LocalPostgres(server_directory / "behind-the-gate", free_port(), new_password(), {"fsync": "off"})
    server.start()
    server.make_roles(dict.fromkeys(Role, server.password))
    try:
        migrations.upgrade(server.url())
        key = insert_admin_key(server.url())
        with public_process(server.url(), tmp_path / "api", TRUSTING) as http:
            admin = Caller(http, key)
            with psycopg.connect(server.url(), autocommit=True) as database:
                place = new_place(admin, database)
            tenant = new_tenant(admin)
            body = one_gpu(tenant, place)
            made = tenant.call("POST", "/allocations", body, key="create")
            sent = {
                "authorization": f"Bearer {tenant.key}",
                "idempotency-key": "the long way",
                "content-type": "application/json; charset=utf-8",
            }
            name, public_key, resource = fresh("key"), ssh_key(), fresh("seat")
            writes: list[Callable[[], httpx.Response]] = [
                lambda: tenant.call("POST", "/allocations", body, key="create"),
                lambda: http.post("/api/v1/allocations", json=body, headers=sent),
                lambda: tenant.call("POST", "/allocations", {**body, "gpus": 3}, key="refused"),
                lambda: tenant.call("POST", f"/allocations/{made.json()['allocation_id']}/release", key="release"),
                lambda: tenant.call("POST", "/ssh-keys", {"name": name, "public_key": public_key}, key="ssh key"),
                lambda: admin.call("PUT", f"/admin/regions/{place.region}", {"display_name": "x"}, key="region"),
                lambda: admin.call("POST", "/admin/resources", {"id": resource}, key="resource"),
                lambda: tenant.call("POST", "/reservations", {"resources": [resource], "holder_id": "h"}, key="hold"),
            ]
            first = [write() for write in writes]
            assert [answer.status_code for answer in first] == [201, 201, 409, 202, 201, 200, 201, 201]
            before = metric_of(http, 'berth_api_gate_hits_total{answer="committed"}')
            server.kill()
            for answer, write in zip(first, writes, strict=True):
                repeated(answer, write())
            problem(tenant.call("POST", "/allocations", {**body, "gpus": 2}, key="create"), 422, "operation_conflict")
            problem(
                tenant.call("POST", "/ssh-keys", {"name": "x", "public_key": public_key}, key="create"),
                422,
                "operation_conflict",
            )
            assert metric_of(http, 'berth_api_gate_hits_total{answer="committed"}') == before + 9
            assert metric_of(http, 'berth_api_gate_hits_total{answer="rejected"}') == 1
            # From here on it is known that the connections are lost: another server may answer next, so nothing is repeated.
            problem(tenant.call("POST", "/allocations", body, key="new"), 503, "database_unavailable")
            problem(writes[0](), 503, "database_unavailable")
            assert metric_of(http, 'berth_api_gate_entries{state="concluded"}') == 0
            server.start()
            wait_for(lambda: http.get("/ok").status_code == 200, "the database to be there again")
            for answer, write in zip(first, writes, strict=True):
                repeated(answer, write())
    finally:
        server.stop()


class Two:
    """Two processes over one database, an operator, a tenant with a place, and the database."""

    def __init__(self, url: str, first: httpx.Client, second: httpx.Client) -> None:
        self.url = url
        self.admin = Caller(first, insert_admin_key(url))
        self.database: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self.place = new_place(self.admin, self.database)
        self.here = new_tenant(self.admin)
        self.there = Caller(second, self.here.key, self.here.tenant_id)
        self.body = one_gpu(self.here, self.place)

    def close(self) -> None:
        self.database.close()

    def create(self, caller: Caller, key: str) -> httpx.Response:
        return caller.call("POST", "/allocations", self.body, key=key)

    def count(self, statement: str, *parameters: object) -> int:
        row = self.database.execute(statement.encode(), parameters or None).fetchone()
        assert row is not None
        return int(row[0])

    def made(self, key: str) -> int:
        return self.count(
            "select count(*) from allocations where operation_key = %s and tenant_id = %s", key, self.here.tenant_id
        )

    def waiting_sessions(self) -> int:
        return self.count(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'berth-orchestrator'"
            " and datname = current_database()"
        )


@pytest.fixture(scope="module")
def pair(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, httpx.Client, httpx.Client]]:
    """A database and two processes for the module."""
    directory = tmp_path_factory.mktemp("gate")
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory / "a") as first,
        public_process(url, directory / "b") as second,
    ):
        yield url, first, second


@pytest.fixture
def two(pair: tuple[str, httpx.Client, httpx.Client]) -> Iterator[Two]:
    """The two processes, and a tenant of the test's own."""
    with closing(Two(*pair)) as made:
        yield made


@contextmanager
def creates_held(two: Two) -> Iterator[None]:
    """Creates of the tenant do not end before the block does."""
    with psycopg.connect(two.database.info.dsn, password=two.database.info.password) as holder:
        holder.execute("select from tenant_quotas where tenant_id = %s for update", (two.here.tenant_id,))
        yield
        holder.rollback()


def test_two_processes_and_one_just_started_give_one_answer(two: Two, tmp_path: Path) -> None:
    for turn in range(5):
        key = f"at once {turn}"
        callers = [two.here, two.there] * 4
        answers = at_once(*(partial(two.create, caller, key) for caller in callers))
        assert {answer.status_code for answer in answers} == {201}, [answer.text for answer in answers]
        assert len({answer.content for answer in answers}) == 1
        assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
        assert two.made(key) == 1
    first = two.create(two.here, "kept")
    refused = two.here.call("POST", "/allocations", {**two.body, "gpus": 3}, key="refused")
    other = {**two.body, "name": "other"}
    problem(two.there.call("POST", "/allocations", other, key="kept"), 422, "operation_conflict")
    with public_process(two.url, tmp_path / "c") as http:
        again = Caller(http, two.here.key, two.here.tenant_id)
        for _ in range(2):
            repeated(first, again.call("POST", "/allocations", two.body, key="kept"))
            repeated(refused, again.call("POST", "/allocations", {**two.body, "gpus": 3}, key="refused"))
            problem(again.call("POST", "/allocations", other, key="kept"), 422, "operation_conflict")


def sending(pool: ThreadPoolExecutor, action: Callable[[], httpx.Response]) -> Future[httpx.Response]:
    return pool.submit(action)


def test_duplicates_in_flight_wait_for_the_first_and_hold_no_connection(two: Two) -> None:
    waited = 'berth_api_gate_waits_total{end="answered"}'
    before = metric_of(two.here.http, waited), metric_of(two.there.http, waited)
    with ThreadPoolExecutor(12) as pool:
        with creates_held(two):
            here = [sending(pool, lambda: two.create(two.here, "k")) for _ in range(6)]
            wait_for(lambda: two.waiting_sessions() == 1, "the first to wait for the lock")
            there = [sending(pool, lambda: two.create(two.there, "k")) for _ in range(4)]
            wait_for(lambda: two.waiting_sessions() == 2, "the other process to wait for the key")
            wait_for(
                lambda: metric_of(two.here.http, 'berth_api_requests_in_flight{zone="public"}') == 6, "all to be there"
            )
            assert two.waiting_sessions() == 2, "one of each process asks the database"
            assert not any(answer.done() for answer in [*here, *there])
        answers = [answer.result() for answer in [*here, *there]]
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1
        assert two.made("k") == 1
        assert metric_of(two.here.http, waited) - before[0] == 5
        assert metric_of(two.there.http, waited) - before[1] == 3


@pytest.mark.parametrize(
    "settings", [{"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "0.3"}, {"IDEMPOTENCY_WAIT_FOR_PENDING": "false"}]
)
def test_a_wait_is_bounded_and_never_ends_in_a_second_run(
    database_url: str, tmp_path: Path, settings: dict[str, str]
) -> None:
    bound = {"BERTH_LOCK_TIMEOUT_SECONDS": "20", **settings}
    with (
        public_process(database_url, tmp_path / "api", bound) as http,
        closing(Two(database_url, http, http)) as two,
        ThreadPoolExecutor(4) as pool,
    ):
        with creates_held(two):
            first = sending(pool, lambda: two.create(two.here, "k"))
            wait_for(lambda: two.waiting_sessions() == 1, "the first to wait for the lock")
            for _ in range(3):
                told = two.create(two.here, "k")
                assert problem(told, 409, "operation_in_progress")["outcome"] == "in_progress"
                assert (told.headers["retry-after"], told.json()["operation_key"]) == ("1", "k")
            assert two.waiting_sessions() == 1
        repeated(first.result(), two.create(two.here, "k"))
        assert two.made("k") == 1


def test_a_client_that_goes_away_leaves_the_key_to_the_table(two: Two) -> None:
    """The first client hangs up; its request completes all the same, and the next ones receive its answer."""
    with ThreadPoolExecutor(4) as pool:
        impatient = Caller(httpx.Client(base_url=two.here.http.base_url, timeout=0.5), two.here.key)
        with creates_held(two):
            with pytest.raises(httpx.ReadTimeout):
                two.create(impatient, "k")
            answers = [sending(pool, partial(two.create, caller, "k")) for caller in (two.here, two.there)]
            wait_for(lambda: two.waiting_sessions() == 2, "the other process to wait for the key")
        told = [answer.result() for answer in answers]
        assert [answer.status_code for answer in told] == [201, 201]
        assert told[0].content == told[1].content
        assert two.made("k") == 1
        impatient.http.close()


@pytest.mark.full
def test_a_question_at_one_process_and_creates_at_another_agree(two: Two) -> None:
    """In both orders, and at the same moment; what is unknown never runs, whichever process receives it."""
    seen = set()
    for turn in range(30):
        key = f"race {turn}"
        start = threading.Barrier(3)

        def ask(key: str = key, start: threading.Barrier = start) -> httpx.Response:
            start.wait()
            return two.there.call("GET", f"/operations/{key}")

        def create(caller: Caller, key: str = key, start: threading.Barrier = start) -> httpx.Response:
            start.wait()
            return caller.call("POST", "/allocations", {**two.body, "gpus": 3}, key=key)

        asked, *answers = at_once(ask, lambda: create(two.here), lambda: create(two.there))
        state = asked.json()["state"]
        seen.add(state)
        answers += [two.here.call("POST", "/allocations", {**two.body, "gpus": 3}, key=key)]
        if state == "unknown":
            assert {answer.json()["code"] for answer in answers} == {"operation_fenced"}
        else:
            assert state == "rejected"
            assert {answer.content for answer in answers} == {answers[0].content}
            assert asked.json()["result"] == answers[0].json()
    assert seen == {"unknown", "rejected"}, "one order never happened"
