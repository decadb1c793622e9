"""When is a guest up? First its message with its seed's nonce, on a separate channel, or a TCP port, or neither, as its image
states; then an SSH server with its host key.

The serial console proves nothing: a tenant can print and flood there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from node_agent.drivers.libvirt.channel import GuestChannel, ready_message
from node_agent.drivers.ssh import NotReady, check_ssh

PAUSE_SECONDS = 0.2
PORT_SECONDS_MAX = 10.0
ANSWERS_NEEDED = 2
"""In a row: a refusal may come before the byte does."""
SSH_SECONDS_MAX = 20.0
"""Of one attempt: under emulation the exchange of keys takes a second."""


async def await_message(find_socket: Callable[[], Awaitable[str]], nonce: str, seconds_max: float) -> GuestChannel:
    """Return the open channel when the guest has said on it that it is ready. Raises NotReady.

    A connection that breaks is opened again: the agent or the guest may have started anew.
    """
    deadline, why = time.monotonic() + seconds_max, "the guest says nothing on its channel"
    expected = ready_message(nonce)
    while (left := deadline - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left):
                if (channel := await _heard(await find_socket(), expected)) is not None:
                    return channel
                why = "the channel was closed: the guest has ended"
        except TimeoutError:
            break
        except (OSError, LookupError, ValueError) as error:
            why = str(error) or type(error).__name__
        await asyncio.sleep(PAUSE_SECONDS)
    raise NotReady(f"no ready message within {seconds_max:g} s: {why}")


async def await_port(host: str, port: int, seconds_max: float) -> None:
    """Return when the guest behind `host`:`port` has accepted connections. Raises NotReady.

    QEMU accepts a connection before it has one to the guest, and closes it if the guest refuses: see `_answers`.
    """
    deadline, why, answers = time.monotonic() + seconds_max, "it was not asked", 0
    while (left := deadline - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(min(left, PORT_SECONDS_MAX)):
                await _answers(host, port)
            answers += 1
            if answers == ANSWERS_NEEDED:
                return
            continue
        except (TimeoutError, OSError) as error:
            answers, why = 0, str(error) or type(error).__name__
        await asyncio.sleep(PAUSE_SECONDS)
    raise NotReady(f"the port accepted no connection within {seconds_max:g} s: {why}")


async def await_ssh(host: str, port: int, host_key: str | None, seconds_max: float) -> str:
    """Return the host key when an SSH server with it, or with any if it is None, answers. Raises NotReady."""
    deadline, why = time.monotonic() + seconds_max, NotReady("it was not asked")
    while (left := deadline - time.monotonic()) > 0:
        try:
            return await check_ssh(host, port, host_key, min(left, SSH_SECONDS_MAX))
        except NotReady as problem:
            why = problem
        await asyncio.sleep(PAUSE_SECONDS)
    raise NotReady(f"no answer within {seconds_max:g} s: {why}")


async def _answers(host: str, port: int) -> None:
    """Return if something behind QEMU's port takes a byte. Raises OSError if it is refused.

    The byte is sent at once. A guest that refuses leaves it unread in QEMU, whose close is then a reset (RFC 9293 §3.10.4,
    RFC 2525 §2.17); one that accepts has it passed on, and answers or sees the end and closes.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"\n")
        writer.write_eof()
        await reader.read(1)
    finally:
        writer.close()


async def _heard(socket: str, expected: str) -> GuestChannel | None:
    """The channel once the line was read; None if it ended before. Raises OSError, ValueError as `GuestChannel.line`."""
    channel, is_kept = await GuestChannel.open(socket), False
    try:
        while (line := await channel.line()) is not None:
            if line == expected:
                is_kept = True
                return channel
        return None
    finally:
        if not is_kept:
            channel.close()
