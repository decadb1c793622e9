"""The ready message: only the line with the nonce counts, whatever else a guest says on its channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import pytest

from node_agent.drivers.libvirt.channel import CHANNEL_BYTES_MAX, LINE_BYTES_MAX
from node_agent.drivers.libvirt.readiness import ANSWERS_NEEDED, await_message, await_port, await_ssh
from node_agent.drivers.ssh import NotReady, new_host_key

NONCE = "5eed"
READY = b"BERTH-READY 5eed\n"


def heard(path: Path, says: Callable[[int], list[bytes]], seconds_max: float) -> int:
    """Wait on a channel whose guest says `says(n)` to its nth connection, and then closes it; how many there were.

    Raises NotReady.
    """

    async def scene() -> int:
        connections = 0

        async def guest(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            try:
                for part in says(connections):
                    writer.write(part)
                    await writer.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()

        async def find() -> str:
            return str(path)

        async with await asyncio.start_unix_server(guest, path):
            (await await_message(find, NONCE, seconds_max)).close()
        return connections

    return asyncio.run(scene())


@pytest.mark.parametrize(
    "says",
    [
        [READY],
        [b"BERTH-READY 0000\n", b"noise\n", READY],
        [READY[:7], READY[7:]],
        [b"\xff\xfe\n", READY],
    ],
    ids=["at once", "after others", "in pieces", "after bytes that are no text"],
)
def test_the_message_is_received(tmp_path: Path, says: list[bytes]) -> None:
    assert heard(tmp_path / "s", lambda _: says, 20.0) == 1


def test_the_message_is_received_by_a_later_connection(tmp_path: Path) -> None:
    assert heard(tmp_path / "s", lambda number: [READY] if number == 3 else [b"BERTH-READ"], 20.0) == 3


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ([b"BERTH-READY 0000\n"], "the channel was closed"),
        ([b"xBERTH-READY 5eed\n"], "the channel was closed"),
        ([READY.strip() + b" more\n"], "the channel was closed"),
        ([b"x" * (LINE_BYTES_MAX + 10)], "limit"),
        ([b"y\n" * (CHANNEL_BYTES_MAX // 2 + 10)], "not that it is ready"),
    ],
    ids=["another nonce", "before it", "behind it", "no end of line", "a flood"],
)
def test_nothing_else_is_the_message(tmp_path: Path, says: list[bytes], why: str) -> None:
    with pytest.raises(NotReady, match=why):
        heard(tmp_path / "s", lambda _: says, 1.0)


def test_a_channel_that_is_not_there_is_waited_for_and_named() -> None:
    async def missing() -> str:
        raise LookupError("there is no domain")

    async def gone() -> str:
        return "/nonexistent/socket"

    finds: list[tuple[Callable[[], Awaitable[str]], str]] = [(missing, "there is no domain"), (gone, "No such file")]
    for find, why in finds:
        with pytest.raises(NotReady, match=why):
            asyncio.run(await_message(find, NONCE, 0.5))


def test_ssh_is_asked_again_until_the_time_is_over() -> None:
    async def scene() -> int:
        asked = 0

        async def no_ssh(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            writer.close()

        async with await asyncio.start_server(no_ssh, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NotReady):
                await await_ssh("127.0.0.1", port, new_host_key()[1], 1.0)
        return asked

    assert asyncio.run(scene()) > 1


def port_behaves(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], seconds: float) -> int:
    """Wait on a port whose server behaves so; how many connections there were. Raises NotReady."""

    async def scene() -> int:
        asked = 0

        async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            await serve(reader, writer)
            writer.close()

        async with await asyncio.start_server(counted, "127.0.0.1", 0) as server:
            await await_port("127.0.0.1", server.sockets[0].getsockname()[1], seconds)
        return asked

    return asyncio.run(scene())


async def _greets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ready\r\n")


async def _silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _refuses(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # As QEMU does when the guest refuses: what was sent stays unread, so the close is a reset.
    writer.transport.abort()


@pytest.mark.parametrize("serve", [_greets, _silent], ids=["a server that greets", "one that waits for the client"])
def test_a_port_behind_which_a_server_takes_a_connection_is_ready(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    assert port_behaves(serve, 20.0) == ANSWERS_NEEDED


def test_a_port_that_is_refused_is_not_ready() -> None:
    with pytest.raises(NotReady, match="accepted no connection"):
        port_behaves(_refuses, 1.0)


def test_one_answer_between_refusals_is_not_enough() -> None:
    asked = 0

    async def sometimes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await (_silent if asked % 2 else _refuses)(reader, writer)

    with pytest.raises(NotReady):
        port_behaves(sometimes, 1.0)
    assert asked > 1


def test_the_host_key_of_a_server_is_returned_when_none_is_expected() -> None:
    async def scene() -> tuple[str, str]:
        private, public = new_host_key()
        server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[asyncssh.import_private_key(private)])
        async with server:
            port = server.sockets[0].getsockname()[1]
            shown = await await_ssh("127.0.0.1", port, None, 20.0)
            with pytest.raises(NotReady, match="another host key"):
                await await_ssh("127.0.0.1", port, new_host_key()[1], 0.5)
        return public, shown

    public, shown = asyncio.run(scene())
    assert public.split()[:2] == shown.split()[:2]
