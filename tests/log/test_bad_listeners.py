"""Clients of `/api/v1/notifications` that send invalid frames or never read: other clients are unaffected."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.api.calling import Caller, new_tenant, problem
from tests.log.listening import Listener
from tests.log.notified import (
    as_browser,
    events_on,
    heard_until,
    last_word,
    notified,
    opened_once,
    refused,
)
from tests.log.streaming import leave
from tests.support.log_versions import version
from tests.support.waiting import wait_for


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


def test_without_a_subscription_there_is_nothing_to_acknowledge(listener: Listener) -> None:
    with notified(listener.admin) as stream:
        stream.send('{"type":"ack","version":0}')
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (1008, "message_refused")


def test_a_client_that_sends_too_much_is_closed(listener: Listener) -> None:
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
        ("/api/v1/notifications", "GET", "x-long: " + "x" * 60_000 + "\r\n", b"431"),
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


@pytest.mark.full
def test_a_subscriber_that_ends_while_it_catches_up_is_no_error(listener: Listener) -> None:
    after = version(listener.admin)["version"]
    leave(listener.database, None, 5_000)
    wait_for(lambda: version(listener.admin)["version"] >= after + 5_000, "them to have their places")
    gone = 'berth_api_notifications_ended_total{reason="gone"}'
    before = listener.metric(gone)
    for _ in range(20):
        with notified(listener.admin, subscription="hasty", after=after) as stream:
            stream.close_timeout = 0.1
            stream.send(json.dumps({"type": "ack", "version": events_on(stream, 10)[-1]["version"]}))
    wait_for(lambda: listener.metric(gone) >= before + 20, "them to be gone")
    assert listener.admin.call("DELETE", "/notifications/subscriptions/hasty").status_code == 204
    lines = [json.loads(line) for line in listener.log.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def test_what_clients_do_wrong_is_no_error_of_the_process(listener: Listener) -> None:
    with pytest.raises(InvalidStatus):
        opened_once(Caller(listener.admin.http, "berth_absent"))
    with notified(listener.admin) as stream:
        stream.protocol.send_text(b"\xff")
        stream.socket.sendall(b"".join(stream.protocol.data_to_send()))
        wait_for(lambda: stream.protocol.close_code is not None, "the socket to be closed")
    assert stream.protocol.close_code == 1007
    lines = [json.loads(line) for line in listener.log.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def test_a_subscriber_that_never_reads_is_cut_off_and_no_other_notices(listener: Listener) -> None:
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


@pytest.mark.full
def test_a_subscriber_that_reads_slowly_from_far_behind_costs_little(listener: Listener) -> None:
    url = listener.admin.http.base_url
    after = version(listener.admin)["version"]
    value = base64.b64encode(b"v" * 60_000).decode()
    for _ in range(80):
        done = listener.admin.http.post(
            "/v1/commit",
            json={"operations": [{"type": "write", "key": "YQ==", "value": value}]},
            headers={"authorization": f"Bearer {listener.admin.key}"},
        )
        assert done.json()["status"] == "committed"
    open_before = listener.metric("berth_api_notification_sockets")
    before = listener.metric("process_resident_memory_bytes")
    with contextlib.ExitStack() as sockets:
        for _ in range(20):
            slow = sockets.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((url.host, url.port))
            slow.sendall(upgrade(listener, f"/api/v1/notifications?after={after}").encode())
        wait_for(lambda: listener.metric("berth_api_notification_sockets") == open_before + 20, "them to be open")
        with notified(listener.admin, after=after) as stream:
            events_on(stream, 80)
        assert listener.metric("process_resident_memory_bytes") - before < 120_000_000
    wait_for(lambda: listener.metric("berth_api_notification_sockets") == open_before, "them to be gone")


def test_a_client_that_only_pings_and_never_reads_is_cut_off(listener: Listener) -> None:
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
        assert (status, document["code"]) == (429, "concurrency_limited")
        with as_browser(tenant) as stream:
            code, word = last_word(stream)
            assert (code, word and word["code"]) == (4429, "concurrency_limited")
        opened_once(listener.admin)
        opened_once(new_tenant(listener.admin))

    def opens() -> bool:
        with contextlib.suppress(Exception):
            opened_once(tenant)
            return True
        return False

    wait_for(opens, "the places to be free again")
