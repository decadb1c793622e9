"""Notifications as an iterator that reconnects automatically, for the blocking and for the asynchronous client.

Needs the library `websockets`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress

from websockets.asyncio import client as awaiting
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync import client as blocking

from berth.client.errors import BerthError
from berth.client.feed.events import Event
from berth.client.feed.listening import Listening, refusal
from berth.client.feed.subscription import StreamEnded

OPEN_SECONDS_MAX = 30.0
_AGAIN = (OSError, TimeoutError, WebSocketException, StreamEnded, BerthError)


def listen(base: str, headers: Callable[[], dict[str, str]], listening: Listening) -> Iterator[Event]:
    """Events as they come; the one before is done with when the next is asked for. `headers` are asked for each attempt.

    Raises `BerthError` if reconnecting cannot help: refused, truncated, or a gap in the chain.
    """
    while True:
        try:
            with blocking.connect(
                listening.address(base), additional_headers=headers(), open_timeout=OPEN_SECONDS_MAX
            ) as socket:
                try:
                    while True:
                        if (due := listening.acknowledgement()) is not None:
                            socket.send(due)
                        try:
                            event = listening.take(socket.recv(listening.patience_seconds()))
                        except TimeoutError:
                            continue
                        if event is not None:
                            yield event
                            listening.done(event)
                finally:
                    if (last := listening.last_acknowledgement()) is not None:
                        with suppress(ConnectionClosed):
                            socket.send(last)
        except _AGAIN as error:
            pause = listening.pause_seconds(_named(error))
        time.sleep(pause)


async def listen_async(
    base: str, headers: Callable[[], Awaitable[dict[str, str]]], listening: Listening
) -> AsyncGenerator[Event, None]:
    """As `listen`, awaited."""
    while True:
        try:
            async with awaiting.connect(
                listening.address(base), additional_headers=await headers(), open_timeout=OPEN_SECONDS_MAX
            ) as socket:
                try:
                    while True:
                        if (due := listening.acknowledgement()) is not None:
                            await socket.send(due)
                        try:
                            async with asyncio.timeout(listening.patience_seconds()):
                                message = await socket.recv()
                        except TimeoutError:
                            continue
                        event = listening.take(message)
                        if event is not None:
                            yield event
                            listening.done(event)
                finally:
                    if (last := listening.last_acknowledgement()) is not None:
                        with suppress(ConnectionClosed):
                            await socket.send(last)
        except _AGAIN as error:
            pause = listening.pause_seconds(_named(error))
        await asyncio.sleep(pause)


def _named(error: Exception) -> Exception:
    if not isinstance(error, InvalidStatus):
        return error
    answer = error.response
    return refusal(answer.status_code, bytes(answer.body or b""), answer.headers.get("retry-after"))
