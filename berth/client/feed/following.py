"""The feed as an iterator that reconnects automatically, for the blocking and for the asynchronous client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator

import httpx

from berth.client.errors import BerthError
from berth.client.feed.event_frames import FrameReader
from berth.client.feed.events import Event
from berth.client.feed.subscription import StreamEnded, Subscription, refusal, require_stream

_AGAIN = (httpx.TransportError, StreamEnded, BerthError)


def follow(http: httpx.Client, subscription: Subscription) -> Iterator[list[Event]]:
    """Events behind the subscription's position in the lists in which they arrive, until it is complete.

    Raises `BerthError` if reconnecting cannot help: refused, truncated, or a gap in the chain.
    """
    while not subscription.is_complete():
        try:
            with http.stream(**subscription.request()) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response)
                require_stream(response)
                frames = FrameReader()
                for chunk in response.iter_bytes():
                    found, ended = _taken(subscription, frames, chunk)
                    if found:
                        yield found
                    if subscription.is_complete():
                        return
                    if ended is not None:
                        raise ended
            raise StreamEnded
        except _AGAIN as error:
            pause = subscription.pause_seconds(error)
        time.sleep(pause)


async def follow_async(http: httpx.AsyncClient, subscription: Subscription) -> AsyncGenerator[list[Event], None]:
    """As `follow`, awaited."""
    while not subscription.is_complete():
        try:
            async with http.stream(**subscription.request()) as response:
                if not response.is_success:
                    await response.aread()
                    raise refusal(response)
                require_stream(response)
                frames = FrameReader()
                async for chunk in response.aiter_bytes():
                    found, ended = _taken(subscription, frames, chunk)
                    if found:
                        yield found
                    if subscription.is_complete():
                        return
                    if ended is not None:
                        raise ended
            raise StreamEnded
        except _AGAIN as error:
            pause = subscription.pause_seconds(error)
        await asyncio.sleep(pause)


def _taken(subscription: Subscription, frames: FrameReader, chunk: bytes) -> tuple[list[Event], Exception | None]:
    """The new events of a chunk, and the error that ended the stream after them, so that the reader gets the events first."""
    found: list[Event] = []
    try:
        for frame in frames.feed(chunk):
            event = subscription.take(frame)
            if event is not None:
                found.append(event)
    except (StreamEnded, BerthError) as ended:
        return found, ended
    return found, None
