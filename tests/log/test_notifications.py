"""`GET /api/v1/notifications` over a real server: the chain, subscriptions and their positions, ends, and bad clients."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import LocalPostgres, free_port
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process, wait_for
from tests.databases import copied_database
from tests.log.notified import (
    PROTOCOL,
    acknowledge,
    as_browser,
    chained,
    events_on,
    heard,
    heard_until,
    last_word,
    notified,
    opened_once,
    refused,
)
from tests.log.streaming import leave
from tests.log.test_versions import version

SETTINGS = {
    "BERTH_FEED_BUFFER_BYTES_MAX": "200000",
    "BERTH_FEED_CHECKPOINT_SECONDS": "0.05",
    "BERTH_FEED_TENANT_SUBSCRIBERS_MAX": "3",
    "BERTH_NOTIFICATIONS_RECHECK_SECONDS": "0.2",
    "BERTH_NOTIFICATIONS_ACK_SECONDS": "2",
    "BERTH_NOTIFICATIONS_SUBSCRIPTIONS_MAX": "3",
    "BERTH_NOTIFICATIONS_MESSAGES_PER_SECOND_MAX": "200",
    "BERTH_CREDENTIAL_CACHE_SECONDS": "0.1",
}


@dataclass(frozen=True)
class Listener:
    """A running API, and its database to write to."""

    admin: Caller
    database: psycopg.Connection[Any]
    log: Path

    def metric(self, name: str) -> float:
        """A number of the process."""
        lines = self.admin.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def position(self, tenant: Caller | None, name: str) -> int | None:
        """Where Postgres has a subscription."""
        scope = "00000000-0000-0000-0000-000000000000" if tenant is None else tenant.tenant_id
        row = self.database.execute(
            "select version from notification_subscriptions where scope = %s and name = %s", (scope, name)
        ).fetchone()
        return None if row is None else int(row[0])


@pytest.fixture(scope="module")
def listener(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listener]:
    """One process over one database for the module."""
    directory = tmp_path_factory.mktemp("notifications")
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory, SETTINGS) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        yield Listener(Caller(http, insert_admin_key(url)), database, directory / "api.log")


def test_events_come_as_they_commit_and_each_sees_its_own(listener: Listener) -> None:
    tenants = [new_tenant(listener.admin) for _ in range(2)]
    after = version(listener.admin)["version"]
    with (
        notified(tenants[0]) as first,
        notified(tenants[0], after=after) as beside,
        notified(tenants[1], after=after) as other,
        notified(listener.admin, after=after) as operator,
    ):
        begin = heard(first)
        assert (begin["type"], begin["after"]) == ("begin", after)
        for tenant in (*tenants, None, *tenants):
            leave(listener.database, tenant, 2)
        told = [events_on(one, 4) for one in (first, beside, other)]
        assert told[0] == told[1]
        for tenant, events in zip((tenants[0], tenants[0], tenants[1]), told, strict=True):
            assert chained(events, after)
            assert {event["tenant_id"] for event in events} == {tenant.tenant_id}
        everything = events_on(operator, 10)
        assert [event["version"] for event in everything] == list(range(after + 1, after + 11))
        assert chained(everything, after)
        row = listener.database.execute(
            "select jsonb_build_object('leader_id', leader_id, 'event_id', event_id, 'event_type', event_type, 'subject', "
            "subject, 'correlation_id', correlation_id, 'tenant_id', tenant_id, 'data', payload) from log where version = %s",
            (told[0][0]["version"],),
        ).fetchone()
        assert row is not None
        assert {**told[0][0], **row[0]} == told[0][0], "it says what the log has"
        assert told[0][0].keys() == {*row[0], "type", "version", "prev_version", "timestamp"}


def test_a_filter_takes_the_chain_and_gives_checkpoints(listener: Listener) -> None:
    after = version(listener.admin)["version"]
    leave(listener.database, None, 2, "node.offline")
    leave(listener.database, None, 2, "node.online")
    head = version(listener.admin)["version"]
    with notified(listener.admin, after=after, types="node.online", subject="things/*") as stream:
        told = events_on(stream, 2)
        assert all("prev_version" not in event for event in told)
        assert {event["event_type"] for event in told} == {"node.online"}
        checkpoint = heard_until(stream, "checkpoint")
        assert checkpoint["version"] == checkpoint["scanned_to"] == head


def test_a_subscription_goes_on_behind_what_was_acknowledged(listener: Listener) -> None:
    tenant, rival = new_tenant(listener.admin), new_tenant(listener.admin)
    with notified(tenant, subscription="desk") as stream:
        assert heard(stream)["subscription"] == "desk"
        leave(listener.database, tenant, 4)
        told = events_on(stream, 4)
        assert acknowledge(stream, told[1]["version"]) == told[1]["version"] == listener.position(tenant, "desk")
        with notified(tenant, subscription="desk", after=0) as behind:
            assert heard(behind)["after"] == told[1]["version"]
            behind.send('{"type":"ack","version":0}')
            assert heard_until(behind, "acked")["version"] == told[1]["version"], "a position never goes back"
    with notified(tenant, subscription="desk", after=0) as stream:
        assert heard(stream)["after"] == told[1]["version"], "where it was goes before `after`"
        assert events_on(stream, 2) == told[2:], "at least once: what was not acknowledged comes again"
        leave(listener.database, rival, 2)
        checkpoint = heard_until(stream, "checkpoint")
        while checkpoint["version"] < version(listener.admin)["version"]:
            checkpoint = heard_until(stream, "checkpoint")
        acknowledge(stream, checkpoint["version"])
    assert listener.position(tenant, "desk") == checkpoint["version"], (
        "what is nobody's here need not be looked at again"
    )
    with notified(rival, subscription="desk", after=0) as stream:
        assert heard(stream)["after"] == 0, "another tenant's name is another subscription"
        assert {event["tenant_id"] for event in events_on(stream, 2)} == {rival.tenant_id}
    (shown,) = tenant.get("/notifications/subscriptions")
    assert (shown["name"], shown["version"]) == ("desk", checkpoint["version"])
    assert rival.call("DELETE", "/notifications/subscriptions/desk").status_code == 204
    problem(rival.call("DELETE", "/notifications/subscriptions/desk"), 404, "not_found")
    assert listener.position(tenant, "desk") == checkpoint["version"], "and only its own is removed"


def test_what_is_acknowledged_last_is_kept_although_the_client_is_gone(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with notified(tenant, subscription="going") as stream:
        leave(listener.database, tenant, 2)
        told = events_on(stream, 2)
        acknowledge(stream, told[0]["version"])  # the next is not written at once
        stream.send(json.dumps({"type": "ack", "version": told[1]["version"]}))
    wait_for(lambda: listener.position(tenant, "going") == told[1]["version"], "the position to be kept")


def test_subscriptions_are_bounded_and_can_be_removed(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    for name in ("a", "b", "c", "a"):
        opened_once(tenant, subscription=name)
    status, document = refused(tenant, subscription="d")
    assert (status, document["code"]) == (409, "subscriptions_full")
    with notified(tenant, subscription="a") as stream:
        leave(listener.database, tenant, 1)
        (told,) = events_on(stream, 1)
        assert tenant.call("DELETE", "/notifications/subscriptions/a").status_code == 204
        stream.send(json.dumps({"type": "ack", "version": told["version"]}))
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (4404, "not_found"), "nothing is kept for who was removed, and it is told"
    opened_once(tenant, subscription="d")
    listener.database.execute(
        "update notification_subscriptions set kept_until = clock_timestamp() where scope = %s", (tenant.tenant_id,)
    )
    assert tenant.get("/notifications/subscriptions") == []
    opened_once(tenant, subscription="e")
    assert [one["name"] for one in tenant.get("/notifications/subscriptions")] == ["e"], "forgotten ones take no room"
    assert listener.admin.call("DELETE", "/notifications/subscriptions/none").status_code == 404


def test_a_subscription_keeps_the_log_within_its_bounds(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    leave(listener.database, tenant, 20)
    head = version(listener.admin)["version"]
    opened_once(tenant, subscription="kept", after=head - 10)

    def needs_from() -> list[int]:
        rows = listener.database.execute(
            "select needs_from from log_cursors where kind = 'subscription' and tenant_id = %s", (tenant.tenant_id,)
        )
        return [row[0] for row in rows]

    assert needs_from() == [head - 9]
    listener.database.execute("update notification_subscriptions set versions_max = 5 where name = 'kept'")
    assert needs_from() == [head - 5], "as many versions as it may, and no more"
    listener.database.execute(
        "update notification_subscriptions set kept_until = clock_timestamp() where name = 'kept'"
    )
    assert needs_from() == [], "and no longer than it may"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("x", 1008),
        ("[]", 1008),
        ('{"type":"ack"}', 1008),
        ('{"type":"ack","version":"1"}', 1008),
        ('{"type":"ack","version":-1}', 1008),
        ('{"type":"ack","version":9223372036854775808}', 1008),
        ('{"type":"ack","version":1,"also":2}', 1008),
        ('{"type":"nack","version":1}', 1008),
        ('{"type":"ack","version":9000000000000000000}', 1008),
        (b'{"type":"ack","version":1}', 1008),
        ("y" * 2_000, 1009),
    ],
    ids=range(11),
)
def test_a_bad_message_ends_its_socket_and_no_other(listener: Listener, sent: Any, code: int) -> None:
    tenant = new_tenant(listener.admin)
    with notified(tenant) as beside, notified(tenant, subscription="bad") as stream:
        stream.send(sent)
        closed, word = last_word(stream)
        assert closed == code
        if code == 1008:
            assert word is not None
            assert word["code"] == "message_refused"
        leave(listener.database, tenant, 1)
        events_on(beside, 1)


def test_a_message_in_ever_more_pieces_is_not_collected(listener: Listener) -> None:
    with notified(listener.admin) as stream:
        with pytest.raises(ConnectionClosed):
            stream.send("" for _ in range(100_000))
        with pytest.raises(ConnectionClosed):
            heard_until(stream, "nothing")


def test_who_has_no_subscription_has_nothing_to_acknowledge(listener: Listener) -> None:
    with notified(listener.admin) as stream:
        stream.send('{"type":"ack","version":0}')
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (1008, "message_refused")


def test_who_talks_too_much_is_closed(listener: Listener) -> None:
    with notified(listener.admin, subscription="talks") as stream:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(5_000):
                stream.send('{"type":"ack","version":0}')
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (1008, "too_many_messages")
    assert listener.admin.call("DELETE", "/notifications/subscriptions/talks").status_code == 204


def test_bad_questions_are_refused_before_a_socket_opens(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    head = version(listener.admin)["version"]
    for query in ({"after": -1}, {"after": "x"}, {"after": 2**63}, {"after": [1, 2]}, {"types": "node.onlin"},
                  {"subject": "x"}, {"subscription": ""}, {"subscription": "a/b"}, {"subscription": "n" * 65},
                  {"subscription": ["a", "b"]}, {"types": ["node.online"] * 51}, {"before": 1},
                  {"access_token": str(tenant.key)}):  # fmt: skip
        status, document = refused(tenant, **query)
        assert (status, document["code"]) == (422, "invalid"), query
    status, document = refused(tenant, after=head + 1_000)
    assert (status, document["code"]) == (400, "version_in_future")
    for key in (None, "berth_x"):
        status, document = refused(Caller(listener.admin.http, key))
        assert (status, document["code"]) == (401, "unauthenticated")
    status, document = refused(tenant, headers={"x-request-id": "\x80"})
    assert (status, document["code"]) == (400, "malformed")
    answer = problem(tenant.call("GET", "/notifications"), 426, "upgrade_required")
    assert "WebSocket" in answer["detail"]
    assert listener.database.execute(
        "select count(*) from notification_subscriptions where scope = %s", (tenant.tenant_id,)
    ).fetchone() == (0,), "a refusal leaves nothing"


def test_a_browser_brings_its_key_as_a_subprotocol_and_is_told_on_the_socket(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with as_browser(tenant) as stream:
        assert stream.subprotocol == PROTOCOL, "the key is not said back"
        leave(listener.database, tenant, 1)
        events_on(stream, 1)
    wrong = Caller(tenant.http, "berth_x")
    for stream, code, named in (
        (as_browser(wrong), 4401, "unauthenticated"),
        (as_browser(tenant, after=2**62), 4400, "version_in_future"),
        (as_browser(tenant, types="x"), 4422, "invalid"),
    ):
        with stream:
            closed, word = last_word(stream)
            assert (closed, word and word["code"]) == (code, named)
    for offered in (("berth.bearer." + str(tenant.key),), (PROTOCOL, "berth.bearer.a", "berth.bearer.b")):
        with pytest.raises(Exception, match="400"):
            as_browser(tenant, *offered)
    assert str(tenant.key) not in listener.log.read_text()


def test_a_key_that_is_revoked_hears_no_further(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with notified(tenant) as stream:
        (made,) = listener.admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
        assert listener.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (4401, "unauthenticated")


def test_sockets_end_when_the_leader_changes(listener: Listener) -> None:
    with notified(listener.admin) as stream:
        heard(stream)
        listener.database.execute("update log_head set leader_id = '1-00000001'")
        try:
            code, word = last_word(stream)
            assert (code, word and word["code"]) == (4503, "leader_changed")
            status, document = refused(listener.admin)
            assert (status, document["code"]) == (503, "leader_unaccepted")
        finally:
            listener.database.execute("update log_head set leader_id = postgres_leader_id()")
    with notified(listener.admin) as stream:
        leave(listener.database, None, 1)
        events_on(stream, 1)


def test_what_was_truncated_is_gone_and_said_so(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    leave(listener.database, tenant, 3)
    own = version(listener.admin)["version"]
    opened_once(tenant, subscription="behind", after=own - 2)
    leave(listener.database, None, 3)
    head = version(listener.admin)["version"]
    listener.database.execute("update log_first set version = %s", (head,))
    try:
        for query in ({"subscription": "behind"}, {"after": own - 2}, {"subscription": "new", "after": own - 2}):
            status, document = refused(tenant, **query)
            assert (status, document["code"], document["first_version"]) == (410, "log_truncated", head)
        with as_browser(tenant, after=own - 2) as stream:
            code, word = last_word(stream)
            assert (code, word and word["code"], word and word["first_version"]) == (4410, "log_truncated", head)
        assert [one["name"] for one in tenant.get("/notifications/subscriptions")] == ["behind"]
        with notified(tenant, after=own) as stream:
            leave(listener.database, tenant, 1)
            assert events_on(stream, 1)[0]["prev_version"] == own, "nothing of its own was truncated behind it"
    finally:
        listener.database.execute("update log_first set version = 1")


def raw(listener: Listener, head: str) -> socket.socket:
    """A connection that has said this."""
    url = listener.admin.http.base_url
    connection = socket.create_connection((url.host, url.port), timeout=60)
    connection.sendall(head.encode())
    return connection


def upgrade(listener: Listener, path: str = "/api/v1/notifications", method: str = "GET", more: str = "") -> str:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {listener.admin.key}\r\nconnection: upgrade\r\n"
        f"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
    )


@pytest.mark.parametrize(
    ("path", "method", "more", "status"),
    [
        ("/api/v1/notifications", "POST", "", b"405"),
        ("/api/v1/notifications", "GET", "content-length: 100000000\r\n", b"400"),
        ("/api/v1/notifications", "GET", "sec-websocket-version: 12\r\n", b"400"),
        ("/api/v1/notifications", "GET", "x-long: " + "x" * 60_000 + "\r\n", b"400"),
        ("/api/v1/allocations", "GET", "", b"404"),
        ("/v1/subscribe", "GET", "", b"404"),
        ("/nothing", "GET", "", b"404"),
    ],
    ids=range(7),
)
def test_a_strange_upgrade_is_refused_and_its_connection_closed(
    listener: Listener, path: str, method: str, more: str, status: bytes
) -> None:
    with raw(listener, upgrade(listener, path, method, more)) as connection:
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    assert answer.split(b" ")[1] == status, answer


def test_what_clients_do_wrong_is_no_error_of_the_process(listener: Listener) -> None:
    with pytest.raises(InvalidStatus):
        opened_once(Caller(listener.admin.http, "berth_nobody"))
    with notified(listener.admin) as stream:
        stream.protocol.send_text(b"\xff")
        stream.socket.sendall(b"".join(stream.protocol.data_to_send()))
        wait_for(lambda: stream.protocol.close_code is not None, "the socket to be closed")
    assert stream.protocol.close_code == 1007
    lines = [json.loads(line) for line in listener.log.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def test_who_never_reads_is_cut_off_and_nobody_else_notices(listener: Listener) -> None:
    after = version(listener.admin)["version"]
    url = listener.admin.http.base_url
    slow = listener.metric('berth_api_notifications_ended_total{reason="slow"}')
    open_before = listener.metric("berth_api_notification_sockets")
    with socket.socket() as never_reads:
        never_reads.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        never_reads.connect((url.host, url.port))
        never_reads.sendall(upgrade(listener).encode())
        wait_for(lambda: listener.metric("berth_api_notification_sockets") == open_before + 1, "it to be open")
        with notified(listener.admin, after=after) as stream:
            expected = 0
            while listener.metric('berth_api_notifications_ended_total{reason="slow"}') == slow:
                leave(listener.database, None, 200)
                expected += 200
                assert expected < 100_000, "it is never cut off"
                events_on(stream, 200)
        wait_for(lambda: listener.metric("berth_api_notification_sockets") == open_before, "both to be gone")
        never_reads.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while never_reads.recv(65_536):
                pass


def test_who_only_pings_and_never_reads_is_cut_off(listener: Listener) -> None:
    ping = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
    url = listener.admin.http.base_url
    with socket.socket() as never_reads:
        never_reads.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        never_reads.connect((url.host, url.port))
        never_reads.settimeout(60)
        never_reads.sendall(upgrade(listener).encode())
        assert never_reads.recv(12).endswith(b"101")  # only then is what follows a frame
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _send_many(never_reads, ping * 500, 600)


def _send_many(connection: socket.socket, chunk: bytes, times: int) -> None:
    for _ in range(times):
        connection.sendall(chunk)


def test_one_tenant_does_not_take_everybodys_places(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(notified(tenant))
        status, document = refused(tenant)
        assert (status, document["code"]) == (503, "overloaded")
        with as_browser(tenant) as stream:
            code, word = last_word(stream)
            assert (code, word and word["code"]) == (4503, "overloaded")
        opened_once(listener.admin)

    def opens() -> bool:
        with contextlib.suppress(Exception):
            opened_once(tenant)
            return True
        return False

    wait_for(opens, "the places to be free again")


def test_a_kill_between_loses_nothing_and_a_stop_says_so(database_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "api"
    directory.mkdir()
    endpoints = Endpoints(database_url, "", "", free_port(), free_port())
    plan = orchestrator_plan("public", endpoints, ensure_authority(directory, "berth.local"), free_port())
    process = ChildProcess(plan, directory / "api.log")
    told: list[dict[str, Any]] = []
    process.spawn(SETTINGS)
    try:
        process.wait_ready()
        with (
            httpx.Client(base_url=endpoints.api_url, timeout=60) as http,
            psycopg.connect(database_url, autocommit=True) as database,
        ):
            admin = Caller(http, insert_admin_key(database_url))
            tenant = new_tenant(admin)
            begin = version(admin)["version"]
            kept, waiting = begin, 0
            for unacknowledged in (1, 2):
                with notified(tenant, subscription="desk", after=begin) as stream:
                    leave(database, tenant, 5)
                    came = events_on(stream, waiting + 5)
                    kept = acknowledge(stream, came[-1 - unacknowledged]["version"])
                    told += [event for event in came if event["version"] <= kept]
                    process.kill()
                    with pytest.raises(ConnectionClosed):
                        heard_until(stream, "nothing")
                leave(database, tenant, 1)  # while nobody listens
                leave(database, None, 1)
                waiting = unacknowledged + 1
                process.spawn(SETTINGS)
                process.wait_ready()
            with notified(tenant, subscription="desk") as stream:
                assert heard(stream)["after"] == kept
                told += events_on(stream, waiting)
                assert chained(told, begin), "nothing was missed, and what was acknowledged did not come again"
                rows = database.execute(
                    "select version from log where tenant_id = %s and version > %s order by 1",
                    (tenant.tenant_id, begin),
                ).fetchall()
                assert [event["version"] for event in told] == [row[0] for row in rows]
                process.terminate()
                code, word = last_word(stream)
                assert (code, word and word["code"]) == (1012, "stopping")
    finally:
        process.terminate()
        process.wait_ended()
