"""What a stranger can do to a connection: every state ends, every size is bounded, and no other client notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from orchestrator.edge import connections, listeners
from orchestrator.edge.connection_counts import ConnectionCounts
from tests.security.listener import BIG_BYTES, UPGRADE, Listener, get, listening, received_until_closed
from tests.support.waiting import wait_for

SOON_SECONDS = 0.3
PINGS_PER_SECOND_MAX = 20


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlines of a connection, short enough to wait for."""
    for name in ("HEAD_SECONDS_MAX", "UNREAD_SECONDS_MAX", "LINGER_SECONDS"):
        monkeypatch.setattr(connections, name, SOON_SECONDS)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as running:
        yield running


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send, and do not mind that the server has heard enough."""
    try:
        connection.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        pass


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nhost: here\r\nx-slow: ", b"\r\n"],
    ids=["nothing", "half a head", "an empty line"],
)
def test_a_head_that_does_not_come_whole_ends_the_connection(listener: Listener, sent: bytes) -> None:
    with listener.connect() as connection:
        connection.sendall(sent)
        assert received_until_closed(connection) == b""


def test_a_served_connection_that_sends_nothing_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "IDLE_SECONDS_MAX", SOON_SECONDS)
    with listening() as listener, listener.connect() as connection:
        connection.sendall(get("/"))
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        assert received_until_closed(connection) == b""
        listener.wait_until_empty()


@pytest.mark.parametrize("sent", [b"GET / HT", b"\r\n"], ids=["half a head", "an empty line"])
def test_a_served_connection_has_the_same_deadline(listener: Listener, sent: bytes) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/"))
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        connection.sendall(sent)
        assert received_until_closed(connection) == b""


@pytest.mark.parametrize("piece", [100, 65_536], ids=["in small pieces", "in large pieces"])
def test_a_head_beyond_the_bound_is_refused_before_it_ends(listener: Listener, piece: int) -> None:
    head = b"GET / HTTP/1.1\r\nhost: here\r\nx-huge: " + b"x" * (4 * 1024 * 1024)
    with listener.connect() as connection:
        for start in range(0, 2 * connections.HEAD_BYTES_MAX, piece):
            send_all(connection, head[start : start + piece])
        refusal = received_until_closed(connection)
    assert refusal.startswith(b"HTTP/1.1 431 ")
    assert json.loads(refusal.partition(b"\r\n\r\n")[2])["code"] == "head_too_large"
    listener.wait_until_empty()


def test_a_head_may_have_its_bound_and_no_more(listener: Listener) -> None:
    for length, status in ((connections.HEAD_BYTES_MAX - 200, b"200"), (connections.HEAD_BYTES_MAX, b"431")):
        with listener.connect() as connection:
            send_all(connection, get("/", "x-long: " + "x" * length, "connection: close"))
            assert received_until_closed(connection).startswith(b"HTTP/1.1 " + status)


def test_a_head_may_have_so_many_fields_and_no_more(listener: Listener) -> None:
    for fields, status in ((connections.FIELDS_MAX - 2, b"200"), (connections.FIELDS_MAX, b"431")):
        with listener.connect() as connection:
            send_all(connection, get("/", "connection: close", *(f"x-{number}: 1" for number in range(fields))))
            assert received_until_closed(connection).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "rest",
    [b"0\r\nx-trailer: 1\r\n\r\n", b"0\r\nx-trailer: " + b"x" * 1_000_000, b"5;" + b"x" * 1_000_000],
    ids=["a trailer field", "an endless trailer field", "an endless chunk extension"],
)
def test_what_follows_a_body_ends_the_connection(listener: Listener, rest: bytes) -> None:
    with listener.connect() as connection:
        send_all(connection, b"POST /reads HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        send_all(connection, rest)
        assert received_until_closed(connection) == b""
    listener.wait_until_empty()


@pytest.mark.parametrize("later", [b"", b"x"], ids=["nothing more", "one byte more"])
def test_a_body_that_never_comes_ends_the_connection(listener: Listener, later: bytes) -> None:
    with listener.connect() as connection:
        connection.sendall(b"POST /refuses HTTP/1.1\r\nhost: here\r\ncontent-length: 1000\r\n\r\n")
        response = connection.recv(1_000)
        send_all(connection, later)
        rest = received_until_closed(connection)
        assert (response + rest).startswith(b"HTTP/1.1 200")
        assert b"connection: close" in response
        listener.wait_until_empty()  # while the client holds its side open


def test_a_client_that_still_sends_its_body_reads_the_response(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(b"POST /refuses HTTP/1.1\r\nhost: here\r\ncontent-length: 200000\r\n\r\n" + bytes(1_000))
        for _ in range(10):
            send_all(connection, bytes(10_000))
        assert received_until_closed(connection).startswith(b"HTTP/1.1 200")


def test_a_client_that_reads_no_response_is_disconnected(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/big") * 4)
        assert connection.recv(1) == b"H"
        listener.wait_until_empty()


def test_a_client_that_reads_nothing_before_it_is_closed_is_disconnected(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/big", "connection: close"))
        assert connection.recv(1) == b"H"
        listener.wait_until_empty()


def test_requests_that_wait_for_a_response_are_bounded(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/waits") + get("/") * 1_000)
        listener.release.set()
        served = received_until_closed(connection).count(b"HTTP/1.1 200")
    assert served == 1 + connections.PIPELINED_MAX


def test_what_cannot_be_read_is_refused_after_the_responses_before_it(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/waits") + get("/") + b"\x00\x01 is no request\r\n\r\n")
        listener.release.set()
        received = received_until_closed(connection)
    assert received.count(b"HTTP/1.1 200") == 2
    assert b"HTTP/1.1 400" not in received  # it would be read as the response to a request that was good


def test_a_control_character_in_a_head_gets_a_problem_document(listener: Listener) -> None:
    for byte in (b"\x00", b"\x01", b"\x7f"):
        with listener.connect() as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nhost: here\r\nidempotency-key: a" + byte + b"b\r\n\r\n")
            head, _, body = received_until_closed(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/problem+json" in head
        document = json.loads(body)
        assert (document["code"], document["status"], document["outcome"]) == ("malformed", 400, "not_done")


def test_connections_of_one_source_are_bounded() -> None:
    with listening(connections_per_source_max=3) as listener:
        held = [listener.connect() for _ in range(3)]
        for connection in held:
            connection.sendall(get("/waits"))
        with listener.connect() as refused:
            assert received_until_closed(refused).startswith(b"HTTP/1.1 503 ")
        listener.release.set()
        for connection in held:
            connection.close()
        listener.wait_until_empty()
        with listener.connect() as again:
            again.sendall(get("/", "connection: close"))
            assert received_until_closed(again).startswith(b"HTTP/1.1 200")


def test_counts_end_with_their_connections() -> None:
    counts = ConnectionCounts(3, 2)
    first, second, third = counts.add("a"), counts.add("a"), counts.add("b")
    assert first is not None
    assert second is not None
    assert third is not None
    assert counts.add("a") is None
    assert counts.add("b") is None
    first()
    assert counts.add("a") is not None
    assert counts.add("c") is None, "the total"


@pytest.mark.parametrize(
    "occupying",
    [get("/big") * 2, b"POST /reads HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nhalf"],
    ids=["unread responses", "half a body"],
)
def test_clients_that_keep_others_waiting_are_not_in_flight(monkeypatch: pytest.MonkeyPatch, occupying: bytes) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS_MAX", 60.0)
    with listening(in_flight_max=2) as listener:
        hostile = [listener.connect() for _ in range(6)]
        for connection in hostile:
            connection.sendall(occupying)
        for connection in hostile:
            if occupying.startswith(b"GET"):
                assert connection.recv(1) == b"H"
        with listener.connect() as connection:
            connection.sendall(get("/", "connection: close"))
            assert received_until_closed(connection).startswith(b"HTTP/1.1 200")
        for connection in hostile:
            connection.close()


def test_a_refused_connection_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER_SECONDS", 60.0)
    with listening(connections_per_source_max=1) as listener, listener.connect() as held:
        held.sendall(get("/waits"))
        refused = [listener.connect() for _ in range(20)]
        for connection in refused:
            assert received_until_closed(connection).startswith(b"HTTP/1.1 503 ")
        wait_for(lambda: len(listener.server.server_state.connections) == 1, "the refused connections to end")
        for connection in refused:
            connection.close()


def test_a_slow_client_reads_the_whole_response(listener: Listener) -> None:
    received = 0
    with listener.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(get("/big", "connection: close"))
        began = time.monotonic()
        while chunk := connection.recv(262_144):
            received += len(chunk)
            if time.monotonic() - began < 5 * SOON_SECONDS:
                listener.release.wait(SOON_SECONDS / 30)  # the pace of the client itself: it reads all the time
    assert received > BIG_BYTES


def test_a_long_lived_response_counts_nothing_while_its_body_is_awaited() -> None:
    """A request that holds no place gives none back either."""
    with listening(in_flight_max=1) as listener:
        streams = [listener.connect() for _ in range(3)]
        for connection in streams:
            connection.sendall(b"POST /v1/subscribe HTTP/1.1\r\nhost: here\r\ncontent-length: 9\r\n\r\nhalf")
        with listener.connect() as first:
            first.sendall(get("/waits"))
            wait_for(lambda: listener.waiting == 1, "the first request")
            with listener.connect() as second:
                second.sendall(get("/", "connection: close"))
                assert received_until_closed(second).startswith(b"HTTP/1.1 503 "), "the bound is one"
        listener.release.set()
        for connection in streams:
            connection.close()


def test_a_websocket_stays_open_longer_than_a_head_may_take(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/api/v1/notifications", *UPGRADE))
        received = b""
        while b"\x81" not in received:
            received += connection.recv(1_000) or pytest.fail(f"the socket ended: {received!r}")
        assert received.startswith(b"HTTP/1.1 101 ")
        ends = time.monotonic() + 3 * SOON_SECONDS
        connection.settimeout(SOON_SECONDS)
        while time.monotonic() < ends:
            with suppress(TimeoutError):
                assert connection.recv(1_000) != b"", "the socket ended"


@pytest.mark.parametrize("opcode", [0x9, 0xA], ids=["ping", "pong"])
def test_a_socket_that_sends_only_pings_or_pongs_is_closed(listener: Listener, opcode: int) -> None:
    frame = bytes([0x80 | opcode, 0x80]) + bytes(4)
    with listener.connect() as connection:
        connection.sendall(get("/api/v1/notifications", *UPGRADE))
        with suppress(ConnectionError):
            for _ in range(1_000):
                connection.sendall(frame)
        received = received_until_closed(connection)
    assert received.startswith(b"HTTP/1.1 101 ")
    assert b"too many pings and pongs" in received


def test_a_socket_may_send_pings_within_the_rate(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(get("/api/v1/notifications", *UPGRADE))
        received = b""
        while b"127.0.0.1" not in received:
            received += connection.recv(1_000) or pytest.fail(f"the socket ended: {received!r}")
        connection.sendall((b"\x89\x80" + bytes(4)) * PINGS_PER_SECOND_MAX)
        while received.count(b"\x8a\x00") < PINGS_PER_SECOND_MAX:
            received += connection.recv(1_000) or pytest.fail(f"the socket ended: {received!r}")
    assert b"too many" not in received
