"""Which guests run and do not answer: asked again and again as a tenant would, at their SSH server.

Such a guest is reported and nothing else: its tenant may have closed the port, so no restart, and no end, follows from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

import structlog

from node_agent.drivers.contract import Answering, Driver, GuestState, Inventory

log = structlog.get_logger("node_agent.reachability")

AT_ONCE_MAX = 8
CHECK_SECONDS_MAX = 10.0
CHECKS_MIN = 4


class Reachability:
    """The guests of one driver. Call it from one event loop."""

    def __init__(self, driver: Driver, silent_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A guest that has not answered for `silent_seconds` is unreachable; 0: none ever is."""
        self._driver = driver if isinstance(driver, Answering) and silent_seconds > 0 else None
        self._silent_seconds = silent_seconds
        self._clock = clock
        self._silent_since: dict[UUID, float] = {}
        self._unreachable: set[UUID] = set()
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    @property
    def pause_seconds(self) -> float:
        """The time between two checks: at least four fit in what makes a guest unreachable."""
        return min(CHECK_SECONDS_MAX, self._silent_seconds / CHECKS_MIN) or CHECK_SECONDS_MAX

    def is_unreachable(self, allocation_id: UUID) -> bool:
        """Whether the guest has not answered for so long that its tenant is to know."""
        return allocation_id in self._unreachable

    async def check(self, inventory: Inventory) -> None:
        """Ask every guest that runs; those that do not run are forgotten."""
        if self._driver is None:
            return
        running = [held.allocation_id for held in inventory.held if held.state is GuestState.RUNNING]
        for gone in self._silent_since.keys() - set(running):
            self._forget(gone)
        await asyncio.gather(*(self._ask(self._driver, allocation_id) for allocation_id in running))

    async def _ask(self, driver: Answering, allocation_id: UUID) -> None:
        asked_at = self._clock()
        async with self._places:
            answers = await driver.answers(allocation_id)
        if answers:
            self._forget(allocation_id)
        elif self._clock() - self._silent_since.setdefault(allocation_id, asked_at) >= self._silent_seconds:
            if allocation_id not in self._unreachable:
                log.warning("guest_unreachable", allocation_id=str(allocation_id))
            self._unreachable.add(allocation_id)

    def _forget(self, allocation_id: UUID) -> None:
        self._silent_since.pop(allocation_id, None)
        if allocation_id in self._unreachable:
            log.info("guest_reachable_again", allocation_id=str(allocation_id))
        self._unreachable.discard(allocation_id)
