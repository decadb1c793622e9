"""What begins by itself: allocations of confirmed reservations, and those that waited for units which are free by now."""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

import structlog

from orchestrator.allocations.commands.waits import start_waiting
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.reservations.commands.move import move_reservation
from orchestrator.reservations.commands.postpone import fail_reservation, postpone_start
from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.reservations.queries import find_due_starts, find_late_starts, find_nodes_to_start, find_stranded
from worker.metrics import SWEEP_FAILURES, SWEPT

log = structlog.get_logger()


class Beginnings:
    """At most `limit` things of each kind in a round, the earliest first, each claim in a transaction of its own.

    What waits for a node is tried in turns, so that many who wait in vain hide nobody whose node is back.
    """

    def __init__(self, context: Context, catalogue: CatalogueCache, limit: int) -> None:
        self._context = context
        self._catalogue = catalogue
        self._limit = limit
        self._late_after = 0

    async def start_due(self) -> None:
        """Start what confirmed reservations stand for; what cannot stay is moved, what cannot be moved waits, or fails."""
        for reservation_id in await find_due_starts(self._context, self._limit):
            await self._done(self._start(reservation_id), "reservation_started", reservation_id=str(reservation_id))

    async def start_late(self) -> None:
        """Try again what waits for a node."""
        found = await find_late_starts(self._context, self._late_after, self._limit)
        self._late_after = found[-1][1] if len(found) == self._limit else 0
        for reservation_id, _ in found:
            await self._done(self._start(reservation_id), "reservation_started", reservation_id=str(reservation_id))

    async def move_stranded(self) -> None:
        """Move what begun reservations hold on nodes out of service, where there is an equal place."""
        for reservation_id in await find_stranded(self._context, self._limit):
            await self._done(self._move(reservation_id), "reservation_moved", reservation_id=str(reservation_id))

    async def start_waiting(self) -> None:
        """Start what waits for units that nobody occupies: the net below the transaction that proves them free."""
        for node_id in await find_nodes_to_start(self._context, self._limit):
            await self._done(self._pass_on(node_id), "units_passed_on", node_id=str(node_id))

    async def _start(self, reservation_id: UUID) -> None:
        for _ in range(self._limit):
            started = await start_reservation(self._context, self._catalogue, reservation_id)
            if started is Started.STOPPED:
                if await self._move(reservation_id):
                    continue
                if await postpone_start(self._context, reservation_id):
                    return
                if not await fail_reservation(self._context, reservation_id):
                    return
                started = Started.FAILED
            if started in (Started.ONE, Started.LAST):
                SWEPT.labels("reservation_started").inc()
                log.info("reservation_started", reservation_id=str(reservation_id))
            elif started is Started.FAILED:
                SWEPT.labels("reservation_failed").inc()
                log.error("reservation_failed", reservation_id=str(reservation_id))
            if started is not Started.ONE:
                return

    async def _move(self, reservation_id: UUID) -> bool:
        moved = await move_reservation(self._context, self._catalogue, reservation_id)
        if moved:
            SWEPT.labels("reservation_moved").inc()
            log.warning("reservation_moved", reservation_id=str(reservation_id))
        return moved

    async def _pass_on(self, node_id: UUID) -> None:
        started = await start_waiting(self._context, node_id)
        SWEPT.labels("units_passed_on").inc(started)
        if started:
            log.warning("units_passed_on", node_id=str(node_id), count=started)

    async def _done(self, work: Awaitable[object], kind: str, **about: str) -> None:
        """One thing that cannot be done now hides none of the others."""
        try:
            await work
        except Problem as problem:
            SWEEP_FAILURES.labels(kind).inc()
            log.warning("sweep_of_reservation_failed", why=str(problem), **about)
