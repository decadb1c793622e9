"""Moves a claim of a reservation to an equal node, because its node is out of service when it is needed."""

from __future__ import annotations

from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import TRIES_MAX, Context, transact
from orchestrator.placement.admission import Wanted, admit_sold_units
from orchestrator.placement.store.windows import find_room
from orchestrator.placement.windows import Pick
from orchestrator.problems import Problem
from orchestrator.reservations.store.reservations import lock_reservation
from orchestrator.reservations.store.starting import StoppedClaim, find_stopped_claim, lock_nodes_of, move_claim


async def move_reservation(context: Context, catalogue: CatalogueCache, reservation_id: UUID) -> bool:
    """Move its first claim on a stopped node, with event `reservation.moved` and a new fence; return whether it moved.

    Applies to live, begun reservations of a SKU; the target is a node of the same pool with as many slots free for the rest
    of the window. If the target is lost between the search and the locks, the search is repeated, a bounded number of times.
    """
    for _ in range(TRIES_MAX):
        found = await _find_target(context, catalogue, reservation_id)
        if found is None:
            return False
        claim, pick = found

        async def work(tx: Transaction, claim: StoppedClaim = claim, pick: Pick = pick) -> bool:
            await lock_nodes_of(tx, reservation_id, pick.node_id)
            subject = await lock_reservation(tx, reservation_id, None)
            if subject is None or not subject.live or subject.overdue or subject.over or not subject.begun:
                return False
            if await find_stopped_claim(tx, reservation_id) != claim:
                return False
            return await move_claim(tx, claim, pick, subject.clock)

        if await transact(context, work):
            return True
    return False


async def _find_target(
    context: Context, catalogue: CatalogueCache, reservation_id: UUID
) -> tuple[StoppedClaim, Pick] | None:
    """The claim to move and its target, read without locks; None if there is no such claim, or no target."""
    offered = await catalogue.before_refusing()
    async with context.database.reading() as reading:
        claim = await find_stopped_claim(reading, reservation_id)
        if claim is None:
            return None
        try:
            units = admit_sold_units(offered, Wanted(claim.sku, claim.gpus, claim.region, None))
        except Problem:
            return None
        room = await find_room(reading, units, None, claim.ends_at, 1)
    return (claim, room.picks[0]) if room.picks else None
