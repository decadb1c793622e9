"""Starts the allocations of confirmed reservations, and allocations whose units have become free."""

from __future__ import annotations

from uuid import UUID

import structlog

from orchestrator.allocations.commands.waits import start_waiting
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context
from orchestrator.reservations.commands.move import move_reservation
from orchestrator.reservations.commands.postpone import fail_reservation, postpone_start
from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.reservations.queries import find_due_starts, find_late_starts, find_nodes_to_start, find_stranded
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


class ReservationStarter:
    """Handles at most `limit` reservations or nodes a run, the earliest first, each claim in its own transaction.

    Late starts and stranded reservations are tried in turns, so that those which cannot start or move yet do not delay those
    that can.
    """

    def __init__(self, context: Context, catalogue: CatalogueCache, limit: int) -> None:
        self._context = context
        self._catalogue = catalogue
        self._limit = limit
        self._late_after = 0
        self._stranded_after = 0

    async def start_due(self) -> None:
        """Start reservations at their start time. One whose node is out of service is moved, postponed or failed."""
        for reservation_id in await find_due_starts(self._context, self._limit):
            with isolate_failure("due_starts", reservation_id=str(reservation_id)):
                await self._start(reservation_id)

    async def start_late(self) -> None:
        """Retry postponed starts."""
        found = await find_late_starts(self._context, self._late_after, self._limit)
        self._late_after = found[-1][1] if len(found) == self._limit else 0
        for reservation_id, _ in found:
            with isolate_failure("late_starts", reservation_id=str(reservation_id)):
                await self._start(reservation_id)

    async def move_stranded(self) -> None:
        """Move the claims of begun reservations off nodes that are out of service, if equal units are free elsewhere."""
        found = await find_stranded(self._context, self._stranded_after, self._limit)
        self._stranded_after = found[-1][1] if len(found) == self._limit else 0
        for reservation_id, _ in found:
            with isolate_failure("stranded_reservations", reservation_id=str(reservation_id)):
                await self._move(reservation_id)

    async def start_waiting(self) -> None:
        """Start allocations whose units are free. The transaction that frees units does this; here it is made up for."""
        for node_id in await find_nodes_to_start(self._context, self._limit):
            with isolate_failure("units_to_start", node_id=str(node_id)):
                started = await start_waiting(self._context, node_id)
                SWEPT.labels("units_passed_on").inc(started)
                if started:
                    log.warning("units_passed_on", node_id=str(node_id), count=started)

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
