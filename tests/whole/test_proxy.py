"""What the proxy holds back arrives later, whole; what it resets is gone."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.proxy import (
    DELAY_SECONDS,
    RETRANSMISSION_SECONDS,
    TRICKLE_BYTES,
    Chooser,
    Mode,
    Proxies,
    Proxy,
)
from tests.support.waiting import wait_for

QUIET_SECONDS = 0.3


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    made = Proxies()
    yield made
    made.close()


@pytest.fixture
def proxy(proxies: Proxies) -> Iterator[Proxy]:
    """A proxy before a server that answers in capitals."""
    server = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1024):
                heard.append(data)
                connection.sendall(data.upper())

    threading.Thread(target=serve, daemon=True).start()
    made = proxies.make("client > server", server.getsockname()[1])
    made.heard = heard  # type: ignore[attr-defined]
    yield made
    server.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=QUIET_SECONDS)


@pytest.mark.parametrize(
    ("mode", "server_hears"), [(Mode.DROP_REQUESTS, False), (Mode.DROP_ANSWERS, True), (Mode.CUT, False)]
)
def test_what_is_held_back_arrives_when_it_is_over(
    proxies: Proxies, proxy: Proxy, mode: Mode, server_hears: bool
) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(1024) == b"ONE"
        with proxies.troubled("client > server", mode):
            client.sendall(b"two")
            with pytest.raises(TimeoutError):
                client.recv(1024)
            assert (b"two" in proxy.heard) is server_hears  # type: ignore[attr-defined]
        assert client.recv(1024) == b"TWO"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1024) == b"", "the end goes through as well"


def test_a_reset_ends_connections_and_refuses_new_ones(proxies: Proxies, proxy: Proxy) -> None:
    with connect(proxy) as client, proxies.troubled("client > server", Mode.RESET):
        with pytest.raises(ConnectionResetError):
            client.recv(1024)
        with pytest.raises(ConnectionResetError):
            connect(proxy).recv(1024)
    with connect(proxy) as client:
        client.sendall(b"again")
        assert client.recv(1024) == b"AGAIN"


def test_a_delay_delays_each_way(proxies: Proxies, proxy: Proxy) -> None:
    with connect(proxy) as client, proxies.troubled("client > server", Mode.DELAY):
        client.settimeout(10)
        began = time.monotonic()
        client.sendall(b"slow")
        assert client.recv(1024) == b"SLOW"
        assert time.monotonic() - began >= 2 * DELAY_SECONDS


def read_whole(client: socket.socket, count: int) -> list[bytes]:
    """Everything that arrives until it is `count` bytes, as it was read."""
    read: list[bytes] = []
    while sum(map(len, read)) < count:
        read.append(client.recv(65_536))
        assert read[-1], "the connection ended early"
    return read


@pytest.mark.parametrize("mode", [Mode.JITTER, Mode.LOSS, Mode.TRICKLE])
def test_whatever_is_late_arrives_whole_and_in_order(proxies: Proxies, proxy: Proxy, mode: Mode) -> None:
    sent = bytes(range(97, 123)) * 40
    with connect(proxy) as client, proxies.troubled("client > server", mode):
        client.settimeout(10)
        for _ in range(3):
            client.sendall(sent)
            assert b"".join(read_whole(client, len(sent))) == sent.upper()


def test_bytes_arrive_one_by_one(proxies: Proxies, proxy: Proxy) -> None:
    with connect(proxy) as client, proxies.troubled("client > server", Mode.TRICKLE):
        client.settimeout(10)
        client.sendall(b"x" * TRICKLE_BYTES)
        read_whole(client, TRICKLE_BYTES)
        # On a busy machine several have come when the server reads.
        assert len(proxy.heard) > 1  # type: ignore[attr-defined]


def test_a_lost_packet_delays_what_is_behind_it(proxies: Proxies, proxy: Proxy) -> None:
    with connect(proxy) as client, proxies.troubled("client > server", Mode.LOSS):
        client.settimeout(10)
        slowest = 0.0
        for _ in range(40):
            began = time.monotonic()
            client.sendall(b"x")
            client.recv(1)
            slowest = max(slowest, time.monotonic() - began)
            if slowest >= min(RETRANSMISSION_SECONDS):
                break
        assert slowest >= min(RETRANSMISSION_SECONDS)


def test_a_message_stops_in_its_middle(proxies: Proxies, proxy: Proxy) -> None:
    with connect(proxy) as client:
        with proxies.troubled("client > server", Mode.STALL):
            client.sendall(b"onetwo")
            # Half of the half that the server saw.
            assert client.recv(1024) == b"O"
            with pytest.raises(TimeoutError):
                client.recv(1024)
            assert proxy.heard == [b"one"]  # type: ignore[attr-defined]
        assert b"".join(read_whole(client, 5)) == b"NETWO"


def test_a_half_closed_connection_ends_for_its_client_and_still_reaches_the_server(
    proxies: Proxies, proxy: Proxy
) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(1024) == b"ONE"
        with proxies.troubled("client > server", Mode.HALF_CLOSE):
            assert client.recv(1024) == b"", "the server's side has ended"
            client.sendall(b"two")
            wait_for(lambda: b"two" in proxy.heard, "the server hears it")  # type: ignore[attr-defined]
            with connect(proxy) as another:
                another.sendall(b"new")
                assert another.recv(1024) == b"NEW", "a new connection is whole"
        assert client.recv(1024) == b"", "it stays ended"


def test_a_seed_is_a_plan() -> None:
    names = [f"link {number}" for number in range(9)]
    assert Chooser(1).plan(names) == Chooser(1).plan(names)
    assert Chooser(1).plan(names) != Chooser(2).plan(names)
    assert sorted(name for name, _ in Chooser(3).plan(names)) == names
