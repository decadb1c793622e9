"""Starts guests again that ended although they should run: a bounded number of attempts, with backoff.

A task of the allocation goes first: it cancels a restart under way and holds off further ones until it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from node_agent.drivers.contract import Driver, DriverFailure, GuestState, Held, Inventory
from node_agent.metrics import AgentMetrics
from node_agent.wire.guests import GuestReport, RestartPolicy

log = structlog.get_logger("node_agent.restarting")

AT_ONCE_MAX = 4


@dataclass(frozen=True)
class RestartLimits:
    """At most `attempts_max` attempts in a row, pauses from `first_seconds` doubling to `most_seconds`.

    A guest that has run for `steady_seconds` since its last restart has all attempts again.
    """

    attempts_max: int = 5
    first_seconds: float = 1.0
    most_seconds: float = 60.0
    steady_seconds: float = 600.0


class RestartSchedule:
    """The attempts for one guest. Pure: the caller passes the time, in seconds of one monotonic clock."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._attempts = 0
        self._next_at = float("-inf")
        self._last_at = float("-inf")

    @property
    def is_exhausted(self) -> bool:
        """Whether no attempt is left."""
        return self._attempts >= self._limits.attempts_max

    def is_due(self, now: float) -> bool:
        """Whether the next attempt may begin."""
        return not self.is_exhausted and now >= self._next_at

    def begin(self, now: float) -> None:
        """Count an attempt; the next one is due after the pause."""
        pause = min(self._limits.first_seconds * 2**self._attempts, self._limits.most_seconds)
        self._attempts += 1
        self._last_at, self._next_at = now, now + pause

    def is_steady(self, now: float) -> bool:
        """Whether a guest that runs now has run long enough since its last restart to have all attempts again."""
        return now - self._last_at >= self._limits.steady_seconds


class Restarts:
    """Restarts the guests of one driver. Call it from one event loop."""

    def __init__(
        self, driver: Driver, metrics: AgentMetrics, limits: RestartLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._driver = driver
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._schedules: dict[UUID, RestartSchedule] = {}
        self._under_way: dict[UUID, asyncio.Task[None]] = {}
        self._held_off: Counter[UUID] = Counter()
        self._seen_down: set[UUID] = set()
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def report_of(self, held: Held) -> GuestReport | None:
        """What a heartbeat says of the guest; None for one on its way up or down, or without a readable record."""
        if held.state is GuestState.RUNNING:
            return GuestReport.RUNNING
        if held.state is GuestState.STOPPED:
            return GuestReport.STOPPED
        if held.state is not GuestState.DOWN:
            return None
        return GuestReport.DOWN if self._may_restart(held) else GuestReport.ENDED

    def notice(self, inventory: Inventory) -> bool:
        """Whether a guest ended since the last call; a guest that has run steadily has all attempts again."""
        now, down = self._clock(), set(inventory.dead)
        for held in inventory.held:
            schedule = self._schedules.get(held.allocation_id)
            if schedule is not None and held.state is GuestState.RUNNING and schedule.is_steady(now):
                del self._schedules[held.allocation_id]
        for gone in self._schedules.keys() - {held.allocation_id for held in inventory.held}:
            del self._schedules[gone]
        is_new = bool(down - self._seen_down)
        self._seen_down = down
        return is_new

    def start_due(self, inventory: Inventory) -> None:
        """Begin to restart the guests whose next attempt is due, without waiting for them."""
        for held in inventory.held:
            allocation_id = held.allocation_id
            if held.state is not GuestState.DOWN or held.restart_policy is RestartPolicy.NEVER:
                continue
            if allocation_id in self._under_way or self._held_off[allocation_id]:
                continue
            schedule = self._schedules.setdefault(allocation_id, RestartSchedule(self._limits))
            if schedule.is_due(self._clock()):
                schedule.begin(self._clock())
                restart = asyncio.create_task(self._restart(allocation_id))
                self._under_way[allocation_id] = restart
                # A task that is cancelled before its first step runs no `finally`.
                restart.add_done_callback(partial(self._forget, allocation_id))

    @asynccontextmanager
    async def held_off(self, allocation_id: UUID | None) -> AsyncIterator[None]:
        """Within, the allocation is not restarted; a restart under way has ended. A task gives the guest all attempts again."""
        if allocation_id is None:
            yield
            return
        self._held_off[allocation_id] += 1
        try:
            if (restart := self._under_way.get(allocation_id)) is not None:
                restart.cancel()
                await asyncio.wait((restart,))
            yield
        finally:
            self._held_off[allocation_id] -= 1
            self._schedules.pop(allocation_id, None)
            if not self._held_off[allocation_id]:
                del self._held_off[allocation_id]

    def is_restarting(self, allocation_id: UUID) -> bool:
        """Whether a restart of the guest is under way."""
        return allocation_id in self._under_way

    async def stop(self) -> None:
        """Cancel every restart and wait for its end."""
        for restart in (running := list(self._under_way.values())):
            restart.cancel()
        if running:
            await asyncio.wait(running)

    def _may_restart(self, held: Held) -> bool:
        if held.restart_policy is RestartPolicy.NEVER:
            return False
        schedule = self._schedules.get(held.allocation_id)
        return schedule is None or not schedule.is_exhausted or held.allocation_id in self._under_way

    def _forget(self, allocation_id: UUID, _ended: asyncio.Task[None]) -> None:
        del self._under_way[allocation_id]

    async def _restart(self, allocation_id: UUID) -> None:
        outcome = "cancelled"
        try:
            async with self._places:
                restarted = await self._driver.restart(allocation_id)
            outcome = "restarted" if restarted else "not_needed"
            log.info("guest_restarted", allocation_id=str(allocation_id), outcome=outcome)
        except (DriverFailure, OSError) as error:
            outcome = "failed"
            log.error("guest_not_restarted", allocation_id=str(allocation_id), why=str(error))
        except Exception:
            outcome = "failed"
            log.exception("guest_not_restarted", allocation_id=str(allocation_id))
        finally:
            self._metrics.restarts.labels(outcome).inc()
