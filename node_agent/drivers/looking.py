"""Asks the driver what the node holds, and waits no longer than a bound: a libvirtd or a disk that hangs stops no heartbeat."""

from __future__ import annotations

import asyncio

import structlog

from node_agent.drivers.contract import Driver, Inventory

log = structlog.get_logger("node_agent.inventory")

LOOK_SECONDS_MAX = 5.0
"""Shorter than the time between two heartbeats, and far shorter than the silence after which a node counts as offline."""


class Look:
    """The looks of one caller, one at a time. Call it from one event loop."""

    def __init__(self, driver: Driver, seconds_max: float = LOOK_SECONDS_MAX) -> None:
        self._driver = driver
        self._seconds_max = seconds_max
        self._running: asyncio.Task[Inventory] | None = None

    async def __call__(self) -> Inventory | None:
        """What the node holds, gathered after this call began; None while the driver cannot look, or takes too long.

        What a look that took too long finds in the end is dropped: it is older than the question that follows.
        """
        if self._running is not None and not self._running.done():
            log.error("inventory_not_taken", driver=self._driver.name, why="an earlier look has not ended")
            return None
        self._running = running = asyncio.create_task(self._driver.inventory())
        running.add_done_callback(_noticed)
        try:
            await asyncio.wait((running,), timeout=self._seconds_max)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait((running,))
            raise
        if not running.done():
            why = f"the driver takes longer than {self._seconds_max:g} s"
            log.error("inventory_not_taken", driver=self._driver.name, why=why)
            return None
        try:
            return running.result()
        except OSError as error:
            log.error("inventory_not_taken", driver=self._driver.name, why=str(error))
            return None


def _noticed(running: asyncio.Task[Inventory]) -> None:
    """asyncio reports a failure that nothing reads."""
    if not running.cancelled():
        running.exception()
