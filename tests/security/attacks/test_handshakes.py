"""Handshakes begin in turns of their source addresses, and connections that end leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from berth.local.authority import Authority, ensure_authority
from orchestrator.edge import connections
from orchestrator.edge.handshakes import (
    SLOW_GAP_SECONDS,
    SLOW_SECONDS,
    HandshakeTurns,
    NoHello,
    wait_for_hello,
)
from tests.security.listener import UPGRADE, get, listening, received_until_closed
from tests.support.waiting import let_others_run, wait_for

KEPT = {
    "SSLProtocol", "_SSLProtocolTransport", "TCPTransport", "MemoryBIO", "SSLObject", "BoundedHttpProtocol",
    "RequestResponseCycle",
}  # fmt: skip
"""Types of the objects of a connection."""
HELLO = b"\x16\x03\x01\x00\x0a" + bytes(10)


def test_the_handshakes_of_one_address_delay_no_other() -> None:
    async def scene() -> None:
        turns = HandshakeTurns()
        given: list[str] = []

        async def begin(source: str) -> None:
            await turns.wait(source)
            given.append(source)

        flood = [asyncio.create_task(begin("127.0.0.2")) for _ in range(500)]
        await let_others_run()
        quiet = [asyncio.create_task(begin(f"127.0.0.{number}")) for number in (3, 4)]
        flood[100].cancel()
        await asyncio.gather(*quiet)
        assert len(given) <= 6, "they come next, before the 500 that waited"
        await asyncio.gather(*flood, return_exceptions=True)
        assert Counter(given) == {"127.0.0.2": 499, "127.0.0.3": 1, "127.0.0.4": 1}

    asyncio.run(scene())


def test_an_address_that_floods_has_few_handshakes_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("orchestrator.edge.handshakes.time.monotonic", lambda: now[0])
    monkeypatch.setattr("orchestrator.edge.handshakes.IDLE_SECONDS", 0)

    async def scene() -> None:
        turns = HandshakeTurns()
        turns.slow_down("127.0.0.2")
        flood = [asyncio.create_task(turns.wait("127.0.0.2")) for _ in range(50)]
        quiet = asyncio.create_task(turns.wait("127.0.0.3"))
        for expected in range(4):
            await let_others_run(20)
            assert sum(task.done() for task in flood) == expected
            now[0] += SLOW_GAP_SECONDS
        await quiet
        now[0] += SLOW_SECONDS
        await asyncio.gather(*flood)

    asyncio.run(scene())


def test_one_handshake_begins_in_a_turn_of_the_event_loop() -> None:
    async def scene() -> None:
        turns = HandshakeTurns()
        begun = [asyncio.create_task(turns.wait("127.0.0.2")) for _ in range(50)]
        await let_others_run(2)
        for _ in range(20):
            before = sum(task.done() for task in begun)
            await let_others_run()
            assert sum(task.done() for task in begun) - before <= 1
        turns.close()
        for task in begun:
            task.cancel()

    asyncio.run(scene())


@pytest.mark.parametrize("pieces", [[HELLO], [HELLO[:3], HELLO[3:7], HELLO[7:]]], ids=["whole", "in pieces"])
def test_a_handshake_begins_when_its_first_message_is_whole(pieces: list[bytes]) -> None:
    async def scene() -> None:
        client, server = socket.socketpair()
        server.setblocking(False)
        with client, server:
            arrived = asyncio.create_task(wait_for_hello(server))
            for piece in pieces:
                await let_others_run(5)
                assert not arrived.done()
                client.sendall(piece)
            await arrived
            assert server.recv(100) == HELLO, "it stays unread"

    asyncio.run(scene())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\xff\xff"], ids=["end", "http", "too long"])
def test_what_is_no_handshake_ends_at_once(sent: bytes) -> None:
    async def scene() -> None:
        client, server = socket.socketpair()
        server.setblocking(False)
        with client, server:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with pytest.raises(NoHello):
                await wait_for_hello(server)

    asyncio.run(scene())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return ensure_authority(tmp_path_factory.mktemp("authority"), "berth.local")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection: what remains then remains for a long time in a process that serves."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kept() -> Counter[str]:
    """How many objects of connections there are."""
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KEPT)


@pytest.mark.full
@pytest.mark.quick("half a body")
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    "sent",
    [
        get("/") + get("/source", "connection: close"),
        b"GET / HTTP/1.1\r\nhost: here\r\nx-huge: " + b"x" * 65_536,
        b"POST /reads HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nhalf",
        get("/big", "connection: close"),
        get("/no-socket", *UPGRADE),
    ],
    ids=["served", "refused head", "half a body", "unread response", "upgrade"],
)
def test_a_connection_that_ended_is_not_kept(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """A process collects garbage seldom, and does not see the memory of TLS: clients that come and go would fill it."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.2)
    settings: dict[str, Any] = {
        "public_tls_certificate_file": authority.listener_certificate, "public_tls_key_file": authority.listener_key,
    }  # fmt: skip
    context = ssl.create_default_context(cafile=str(authority.ca_certificate))
    with listening(**settings) as listener:
        before = kept()
        for _ in range(5):
            with context.wrap_socket(listener.connect(), server_hostname="127.0.0.1") as connection:
                connection.sendall(sent)
                if b"/source" in sent or b"huge" in sent:
                    received_until_closed(connection)
                elif b"half" not in sent:  # to which there is no response before its deadline
                    connection.recv(1)
        listener.wait_until_empty()
        wait_for(lambda: not kept() - before, "the connections' objects to be gone", 20)
        assert not kept() - before
