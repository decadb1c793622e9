"""What an agent learns of the guests of its networks on other nodes, with the answers to its heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import IPv4Address

from node_agent.drivers.contract import Driver, Spanning
from node_agent.wire.networks import SpanAnswer, SpanReport

BEATS_UNTIL_ALL = 30
"""Heartbeats after which all networks are asked for again, whether they have changed or not."""


class OtherNodes:
    """Passes answers on to a driver that is `Spanning`. `underlay`: None for an agent whose networks end at the node."""

    def __init__(self, driver: Driver, underlay: IPv4Address | None) -> None:
        self._driver = driver
        self._underlay = underlay
        self._etag: str | None = None
        self._beats = 0
        self._changed = asyncio.Event()

    def report(self) -> SpanReport | None:
        """The part of the next heartbeat."""
        if self._underlay is None:
            return None
        asks_for_all = self._beats % BEATS_UNTIL_ALL == 0
        self._beats += 1
        return SpanReport(underlay=self._underlay, etag=None if asks_for_all else self._etag)

    def take(self, answer: SpanAnswer | None) -> None:
        """The driver knows what the answer says."""
        if answer is None or answer.networks is None or not isinstance(self._driver, Spanning):
            return
        if self._driver.note_other_nodes(answer.networks):
            self._changed.set()
        self._etag = answer.etag

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until an answer has changed something since the last call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()
