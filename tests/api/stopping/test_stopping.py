"""A listener that is stopped under load: whatever it has accepted is answered, and nothing it did not answer was done."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant, ssh_key
from tests.api.processes import public_process, stoppable_public_process
from tests.api.stopping.clients import Answer, Unanswered, accepts, ask_anew, connected, exchange, read_answer, request
from tests.support.waiting import wait_for

STOPPED_SECONDS_MAX = 6.0
"""For a process without slow work: far below what requests may take, and above what a busy machine needs."""
IN_FLIGHT = 300


def port_of(caller: Caller) -> int:
    """Where the process of this caller listens."""
    port = caller.http.base_url.port
    assert port is not None
    return port


def added(name: str, key: str | None) -> bytes:
    """A request that stores an SSH key."""
    return request("POST", "/ssh-keys", key, json.dumps({"name": name, "public_key": ssh_key()}).encode())


def test_requests_in_flight_are_answered_by_a_process_that_stops(database_url: str, tmp_path: Path) -> None:
    patient = {"BERTH_LOCK_TIMEOUT_SECONDS": "60", "BERTH_DATABASE_POOL_SIZE": "40"}
    with (
        stoppable_public_process(database_url, tmp_path / "api", patient) as (http, process),
        psycopg.connect(database_url) as locking,
        psycopg.connect(database_url, autocommit=True) as database,
    ):
        tenant = new_tenant(Caller(http, insert_admin_key(database_url)))
        locking.execute("lock table ssh_keys")

        def waiting() -> int:
            row = database.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
            assert row is not None
            return int(row[0])

        async def scene() -> list[Answer | None]:
            names = [fresh("in-flight") for _ in range(IN_FLIGHT)]
            asking = [asyncio.create_task(ask_anew(port_of(tenant), added(name, tenant.key))) for name in names]
            await asyncio.to_thread(wait_for, lambda: waiting() >= 30, "many requests wait for the lock")
            process.terminate()
            await asyncio.to_thread(wait_for, lambda: not accepts(port_of(tenant)), "the listener accepts no more")
            locking.rollback()
            return await asyncio.gather(*asking)

        answers = asyncio.run(scene())
        assert process.process is not None
        process.process.wait(STOPPED_SECONDS_MAX)
        statuses = Counter(answer.status for answer in answers if answer is not None)
        assert sum(statuses.values()) == IN_FLIGHT
        assert statuses.keys() <= {201, 503}
        row = database.execute("select count(*) from ssh_keys where tenant_id = %s", (tenant.tenant_id,)).fetchone()
        assert row == (statuses[201],)
        assert statuses[201] >= 30


def test_clients_that_go_on_elsewhere_meet_no_reset_and_no_request_is_half_done(
    database_url: str, tmp_path: Path
) -> None:
    many = {"BERTH_TENANT_SSH_KEYS_MAX": "100000"}
    with (
        stoppable_public_process(database_url, tmp_path / "a", many) as (http, process),
        public_process(database_url, tmp_path / "b", many) as other,
        psycopg.connect(database_url, autocommit=True) as database,
    ):
        tenant = new_tenant(Caller(http, insert_admin_key(database_url)))
        first, second = port_of(tenant), other.base_url.port or 0
        answered: dict[str, int] = {}
        not_answered: set[str] = set()
        stopped = asyncio.Event()

        async def ask_on_new_connections() -> None:
            """Each request has its own connection: none may be lost. A listener that refuses it is left for the other."""
            while not stopped.is_set():
                name = fresh("new")
                message = added(name, tenant.key)
                answer = await ask_anew(first, message) or await ask_anew(second, message)
                assert answer is not None
                answered[name] = answer.status

        async def ask_on_one_connection() -> None:
            """The connection may end between two requests; the one that meets its end was not done."""
            reader, writer = await asyncio.open_connection("127.0.0.1", first)
            while True:
                name = fresh("kept")
                try:
                    answer = await exchange(reader, writer, added(name, tenant.key))
                except (Unanswered, ConnectionError):
                    not_answered.add(name)
                    break
                answered[name] = answer.status
                if answer.ends_connection:
                    break
            writer.close()

        async def scene() -> None:
            asking = [asyncio.create_task(ask_on_new_connections()) for _ in range(40)]
            kept = [asyncio.create_task(ask_on_one_connection()) for _ in range(40)]
            await asyncio.to_thread(wait_for, lambda: len(answered) >= 200, "the clients are at work")
            process.terminate()
            assert process.process is not None
            await asyncio.to_thread(process.process.wait, STOPPED_SECONDS_MAX)
            before = len(answered)
            await asyncio.to_thread(wait_for, lambda: len(answered) >= before + 50, "the clients go on elsewhere")
            stopped.set()
            await asyncio.gather(*asking, *kept)

        asyncio.run(scene())
        assert set(answered.values()) <= {201, 503}
        found = {str(name) for (name,) in database.execute("select name from ssh_keys").fetchall()}
        assert {name for name, status in answered.items() if status == 201} <= found
        assert not found & not_answered


def test_connections_that_only_the_kernel_has_accepted_are_answered(database_url: str, tmp_path: Path) -> None:
    with (
        stoppable_public_process(database_url, tmp_path / "api") as (http, process),
        contextlib.ExitStack() as opened,
    ):
        caller = Caller(http, insert_admin_key(database_url))
        assert caller.call("GET", "/skus").status_code == 200
        child = process.process
        assert child is not None
        child.send_signal(signal.SIGSTOP)
        connections = [opened.enter_context(connected(port_of(caller))) for _ in range(IN_FLIGHT)]
        for connection in connections:
            connection.sendall(request("GET", "/skus", caller.key))
        child.terminate()
        child.send_signal(signal.SIGCONT)
        answers = [read_answer(connection) for connection in connections]
        assert Counter(answer.status for answer in answers if answer is not None) == {200: IN_FLIGHT}
        child.wait(STOPPED_SECONDS_MAX)


def test_a_head_that_is_half_sent_is_answered_after_the_signal(database_url: str, tmp_path: Path) -> None:
    with stoppable_public_process(database_url, tmp_path / "api") as (http, process):
        caller = Caller(http, insert_admin_key(database_url))
        message = request("GET", "/skus", caller.key)
        with connected(port_of(caller)) as connection:
            connection.sendall(message[:20])
            wait_for(lambda: caller.call("GET", "/skus").status_code == 200, "the process to have read it")
            process.terminate()
            wait_for(lambda: not accepts(port_of(caller)), "the listener accepts no more")
            connection.sendall(message[20:])
            answer = read_answer(connection)
            assert answer is not None
            assert (answer.status, answer.ends_connection) == (200, True)
            assert connection.recv(1) == b""


def test_idle_connections_end_without_a_reset_and_hold_up_no_stop(database_url: str, tmp_path: Path) -> None:
    with stoppable_public_process(database_url, tmp_path / "api") as (http, process):
        caller = Caller(http, insert_admin_key(database_url))
        used, unused = (socket.create_connection(("127.0.0.1", port_of(caller))) for _ in range(2))
        with used, unused:
            used.sendall(request("GET", "/skus", caller.key))
            answer = read_answer(used)
            assert answer is not None
            assert not answer.ends_connection
            process.terminate()
            assert process.process is not None
            process.process.wait(STOPPED_SECONDS_MAX)
            for connection in (used, unused):
                assert connection.recv(1) == b""


@pytest.mark.parametrize("kind", ["stream", "socket"])
def test_a_client_that_does_not_read_its_last_message_holds_up_no_stop(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    with stoppable_public_process(database_url, tmp_path / "api") as (http, process):
        tenant = new_tenant(Caller(http, insert_admin_key(database_url)))
        with connected(port_of(tenant)) as mute:
            upgrade: dict[str, Any] = {}
            if kind == "socket":
                upgrade = {
                    "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                    "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
                }  # fmt: skip
            path = "/v1/subscribe" if kind == "stream" else "/api/v1/notifications"
            fields = {"host": "berth", "authorization": f"Bearer {tenant.key}", **upgrade}
            lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
            mute.sendall("\r\n".join(lines).encode())
            begun = mute.recv(12)
            assert begun == (b"HTTP/1.1 200" if kind == "stream" else b"HTTP/1.1 101")
            process.terminate()
            assert process.process is not None
            process.process.wait(STOPPED_SECONDS_MAX)
