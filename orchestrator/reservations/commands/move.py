"""A reservation's claim goes to an equal node, because its own is out of service when it is needed."""

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
    """Move its first claim that cannot stay, with event `reservation.moved` and a new fence; whether that was done.

    Only a reservation of a SKU that is live and has begun, to a node of the same pool where as many slots are free for the
    rest of its window. What was taken between the look and the locks is looked for again, a bounded number of times.
    """
    for _ in range(TRIES_MAX):
        found = await _look(context, catalogue, reservation_id)
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


async def _look(context: Context, catalogue: CatalogueCache, reservation_id: UUID) -> tuple[StoppedClaim, Pick] | None:
    """The claim to move and where to, without locks; None if there is nothing to move, or nowhere."""
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
