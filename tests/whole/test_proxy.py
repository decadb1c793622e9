"""What the proxy holds back arrives later, whole; what it resets is gone."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.proxy import DELAY_SECONDS, Chooser, Mode, Proxies, Proxy

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


def test_a_seed_is_a_plan() -> None:
    names = [f"link {number}" for number in range(9)]
    assert Chooser(1).plan(names) == Chooser(1).plan(names)
    assert Chooser(1).plan(names) != Chooser(2).plan(names)
    assert sorted(name for name, _ in Chooser(3).plan(names)) == names
