"""A link passes bytes both ways, holds them back while it is cut, loses none when it is mended, and resets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.campaign.links import Links

SHOUT = b"x" * 300_000


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65_536):
                    connection.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def links() -> Iterator[Links]:
    """No link yet."""
    made = Links()
    yield made
    made.close()


def read(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        received += connection.recv(length - len(received)) or pytest.fail("the connection has ended")
    return received


def test_bytes_pass_and_the_end_too(links: Links, echo_port: int) -> None:
    with socket.create_connection(("127.0.0.1", links.make("one", echo_port)), timeout=10) as connection:
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(read, connection, len(SHOUT))
            connection.sendall(SHOUT)
            assert answer.result() == SHOUT
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("one_way", [True, False])
def test_what_was_sent_into_a_cut_arrives_when_it_is_mended(links: Links, echo_port: int, one_way: bool) -> None:
    with socket.create_connection(("127.0.0.1", links.make("one", echo_port)), timeout=10) as connection:
        connection.sendall(b"before")
        assert read(connection, 6) == b"before"
        links.cut("one", one_way=one_way)
        connection.sendall(b"during")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
        links.mend("one")
        assert read(connection, 6) == b"during"


def test_a_drop_resets_and_the_next_connection_works(links: Links, echo_port: int) -> None:
    port = links.make("one", echo_port)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"x")
        assert read(connection, 1) == b"x"
        links.drop("one")
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"y")
        assert read(connection, 1) == b"y"


def test_a_server_that_is_away_is_told_by_the_end_of_the_connection(links: Links) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = links.make("one", nobody.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass
