"""The readiness check accepts only an SSH server that proves the right host key."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from node_agent.drivers.ssh import NotReady, check_ssh, new_host_key, read_host_key


async def checked(host_key: bytes, expected: str) -> None:
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[asyncssh.import_private_key(host_key)])
    async with server:
        await check_ssh("127.0.0.1", server.get_port(), expected, 5.0)


def test_readiness_accepts_the_holder_of_the_host_key_and_no_other_server() -> None:
    private, public = new_host_key()
    _, other_public = new_host_key()
    assert read_host_key(private) == public
    assert asyncssh.import_private_key(private).export_public_key().decode().split()[:2] == public.split()
    for _ in range(20):  # secrets with leading zeros or a set first bit are encoded differently
        asyncio.run(checked(private, public))
    with pytest.raises(NotReady, match="another host key"):
        asyncio.run(checked(private, other_public))


def test_a_thief_of_the_public_key_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = new_host_key()
    thief, _ = new_host_key()
    stolen = asyncssh.import_private_key(thief)
    # Shows the genuine public key and signs with its own private one.
    genuine = asyncssh.import_private_key(private).public_data
    monkeypatch.setattr(type(stolen), "public_data", property(lambda _: genuine))

    async def scene() -> None:
        server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[stolen])
        async with server:
            await check_ssh("127.0.0.1", server.get_port(), public, 5.0)

    with pytest.raises(NotReady, match="InvalidSignature"):
        asyncio.run(scene())


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "it says"),
        (b"SSH-2.0-x\r\n" + b"\xff" * 64, "make no sense"),
        (b"SSH-2.0-x\r\n\0\0\0\x0c\x04\x01" + b"\0" * 11, "message 1"),
        (b"SSH-2.0-x\r\n", "IncompleteRead|0 bytes|TimeoutError"),
    ],
)
def test_what_is_not_ssh_is_not_ready(says: bytes, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        writer.write_eof()
        await reader.read()
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            await check_ssh("127.0.0.1", server.sockets[0].getsockname()[1], new_host_key()[1], 2.0)

    with pytest.raises(NotReady, match=why):
        asyncio.run(scene())
