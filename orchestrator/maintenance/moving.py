"""Moves claims of reservations of a SKU out of a maintenance window, in the transaction of its commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import Reading, Transaction, TransactionConflict
from orchestrator.maintenance import store
from orchestrator.maintenance.rules import Conflict, Policies
from orchestrator.maintenance.states import Resolution
from orchestrator.placement.admission import Wanted, admit_sold_units
from orchestrator.placement.store.windows import find_room
from orchestrator.placement.windows import Pick
from orchestrator.problems import Problem

SLOTS_MAX = 64
"""More than a node has."""
Targets = dict[int, Pick]
"""The new place of each claim, by its id."""


async def find_new_places(
    reading: Reading,
    catalogue: CatalogueCache,
    conflicts: Sequence[Conflict],
    policies: Policies,
    window_nodes: Collection[UUID],
) -> Targets:
    """Equal units outside of the window's nodes for each claim that is to be moved, no two of them the same.

    Read without locks. A claim without an entry cannot be moved.
    """
    to_move = [one for one in conflicts if one.resolution(policies) is Resolution.MOVE]
    found: Targets = {}
    if not to_move:
        return found
    offered = await catalogue.before_refusing()
    count = len(to_move) + SLOTS_MAX * len(window_nodes)
    taken: dict[UUID, int] = {}
    for one in to_move:
        assert one.sku is not None, "only a reservation of a SKU is moved"
        assert one.gpus is not None, "a reservation of a SKU has GPUs"
        assert one.region is not None, "a reservation of a SKU has a region"
        try:
            units = admit_sold_units(offered, Wanted(one.sku, one.gpus, one.region, None))
        except Problem:
            continue
        room = await find_room(reading, units, one.starts_at, one.ends_at, count)
        for pick in room.picks:
            if pick.node_id not in window_nodes and not pick.mask & taken.get(pick.node_id, 0):
                taken[pick.node_id] = taken.get(pick.node_id, 0) | pick.mask
                found[one.claim_id] = pick
                break
    return found


async def lock_reservations(tx: Transaction, conflicts: Sequence[Conflict], targets: Targets) -> None:
    """Lock the reservations whose claims have a new place, by id; the caller has locked the nodes."""
    ids = sorted({one.owner_id for one in conflicts if one.claim_id in targets})
    await store.lock_reservations(tx, ids)


async def move_claims(
    tx: Transaction, conflicts: Sequence[Conflict], policies: Policies, targets: Targets, reason: str
) -> None:
    """Move each claim that is in the way and has a new place, with its event and a new fence.

    Raises `TransactionConflict` if a new place was taken before its lock.
    """
    for one in conflicts:
        pick = targets.get(one.claim_id)
        if pick is None or one.resolution(policies) is not Resolution.MOVE:
            continue
        if not await store.move_claim(tx, one.claim_id, pick.node_id, pick.mask, reason):
            raise TransactionConflict("the units that a claim was to be moved to are not free any more")
