"""A body in thousands of chunks ends its connection, before its chunks cost more than a body of the largest size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.edge.connections import PIECES_MAX, BoundedHttpProtocol
from tests.security.listener import Listener, get, listening, received_until_closed

HEAD = b"POST /held HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as running:
        running.release.set()
        yield running


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that were handed on."""
    found: list[int] = []
    on_body = BoundedHttpProtocol.on_body

    def note(self: BoundedHttpProtocol, body: bytes) -> None:
        found.append(len(body))
        on_body(self, body)

    monkeypatch.setattr(BoundedHttpProtocol, "on_body", note)
    return found


def test_a_body_of_one_byte_chunks_ends_the_connection(listener: Listener, pieces: list[int]) -> None:
    with listener.connect() as connection:
        try:
            connection.sendall(HEAD + b"1\r\n \r\n" * 262_144 + b"0\r\n\r\n")
        except ConnectionError:
            pass  # it ended while the rest was being sent
        assert b" 200 " not in received_until_closed(connection)
    assert len(pieces) <= PIECES_MAX + 1
    with listener.connect() as other:
        other.sendall(get("/", "connection: close"))
        assert received_until_closed(other).startswith(b"HTTP/1.1 200"), "others are served"


def test_a_body_in_many_chunks_arrives_whole(listener: Listener) -> None:
    """And the next one on the connection may have as many. A chunk that arrives in two parts is two pieces."""
    chunks = PIECES_MAX - 64
    body = b"".join(b"%x\r\n%b\r\n" % (100, b"x" * 100) for _ in range(chunks)) + b"0\r\n\r\n"
    with listener.connect() as connection:
        for number in (1, 2):
            connection.sendall(HEAD + body)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
            assert listener.received == number * chunks * 100
