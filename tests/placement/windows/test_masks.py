"""The free slots of a window by PostgreSQL, compared with a check of every slot and every claim."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.range import TimestamptzRange

from orchestrator.placement.inventory import Layout, classes_of
from orchestrator.placement.store.windows import PackedGrounds, micros, unpack_grounds
from tests.placement.fleet import Fleet

HOUR = timedelta(hours=1)
SLOTS = 8
NOW = datetime(2040, 1, 1, tzinfo=UTC)
"""The clock that is handed over; claims lie around it."""

CLAIM = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, booked, occupied, occupied_from, fence,
                    created_at, closed_at, waits_for, waits_since, waits_until)
values (%(node)s, %(owner)s, %(kind)s, %(owner)s, (select range_agg(int8range(u, u + 1)) from unnest(%(units)s::bigint[]) u),
        %(during)s, %(booked)s, %(occupied)s, case when %(occupied)s then lower(%(during)s::tstzrange) end, 1,
        %(created)s, case when not %(booked)s and not %(occupied)s then %(now)s::timestamptz end,
        case when %(occupied)s and not %(booked)s then 'worker' end,
        case when %(occupied)s and not %(booked)s then %(now)s::timestamptz end, %(until)s)
"""
HOLD = """
insert into reservations (id, position, tenant_id, holder_id, resources, gpus_held, starts_at, hold_until, expires_at,
    operation_key, operation_fingerprint, correlation_id, held_at, held_event, waits_for, waits_since, waits_until)
values (%(id)s, nextval('reservation_positions'), %(id)s, 'h', array['r'], 0, %(at)s, %(at)s, %(at)s, %(id)s, '\\x00', %(id)s,
    %(at)s, %(id)s, 'holder', %(at)s, %(at)s)
"""


@dataclass(frozen=True)
class Drawn:
    """A claim as it was drawn; `overdue`: its hold is past its deadline."""

    node: UUID
    slots: frozenset[int]
    starts: datetime
    ends: datetime | None
    booked: bool
    occupied: bool
    until: datetime | None
    overdue: bool

    def blocks(self, starts: datetime, ends: datetime | None) -> bool:
        """Whether it keeps others from its slots at some time of the window: what the comments of 0003_windows.sql say."""
        if self.overdue or not (self.booked or self.occupied):
            return False
        last = self.ends if self.booked else self.until
        if self.occupied and last is not None:
            last = max(last, NOW + timedelta(minutes=1))
        return (ends is None or self.starts < ends) and (last is None or last > starts)


def draw(chance: random.Random, nodes: Sequence[UUID]) -> Drawn:
    """Any claim; its slots need not be neighbours."""
    starts = NOW + chance.randrange(-40, 40) * HOUR
    ends = None if chance.random() < 0.3 else starts + chance.randrange(1, 40) * HOUR
    occupied = starts <= NOW and chance.random() < 0.4
    booked = chance.random() < 0.8
    return Drawn(
        node=chance.choice(nodes),
        slots=frozenset(chance.sample(range(SLOTS), chance.choice([1, 1, 2, 3]))),
        starts=starts,
        ends=ends,
        booked=booked,
        occupied=occupied,
        until=None if booked or chance.random() < 0.3 else NOW + chance.randrange(-5, 20) * HOUR,
        overdue=booked and not occupied and chance.random() < 0.2,
    )


def keep(connection: psycopg.Connection[Any], bases: dict[UUID, int], claim: Drawn) -> bool:
    """Put the claim into the table; whether the constraints took it."""
    owner = uuid4()
    values = {
        "node": claim.node, "owner": owner, "units": [bases[claim.node] + slot for slot in claim.slots], "now": NOW,
        "kind": "reservation" if claim.overdue or (claim.starts > NOW and claim.booked) else "allocation",
        "during": TimestamptzRange(claim.starts, claim.ends), "booked": claim.booked, "occupied": claim.occupied,
        "created": min(claim.starts, NOW), "until": claim.until if claim.occupied and not claim.booked else None,
    }  # fmt: skip
    try:
        connection.execute(CLAIM, values)
    except psycopg.errors.ExclusionViolation:
        return False
    if claim.overdue:
        connection.execute(HOLD, {"id": owner, "at": NOW - HOUR})
    return True


def masks_by_hand(
    claims: Sequence[Drawn], nodes: Sequence[UUID], stopped: dict[UUID, int], starts: datetime, ends: datetime | None
) -> dict[UUID, int]:
    """Free slots of every node throughout the window, slot by slot."""
    found = {}
    for node in nodes:
        free = (1 << SLOTS) - 1 & ~stopped.get(node, 0)
        for claim in claims:
            if claim.node == node and claim.blocks(starts, ends):
                for slot in claim.slots:
                    free &= ~(1 << slot)
        found[node] = free
    return found


@pytest.mark.parametrize("seed", range(6))
def test_masks_and_packed_pools_are_what_every_claim_says(database_url: str, seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet(database_url, slice_nodes=5)
    connection = fleet.connection
    bases: dict[UUID, int] = dict(connection.execute("select id, unit_base from nodes").fetchall())
    nodes = list(bases)
    claims = [claim for claim in (draw(chance, nodes) for _ in range(60)) if keep(connection, bases, claim)]
    stopped_node = nodes[0]
    connection.execute(
        "update slots set state = 'out_of_service' where node_id = %s and slot_index = 3", (stopped_node,)
    )
    connection.execute("select refresh_node_fit(id) from nodes")
    always: dict[UUID, int] = dict(connection.execute("select id, free_mask from nodes").fetchall())
    near = {claim.node for claim in claims if (claim.booked or claim.occupied) and not fits_for_ever(claim)}
    assert near
    classes = [fit.number for fit in classes_of((Layout(SLOTS, 4),))]

    for _ in range(40):
        starts = NOW + chance.choice([timedelta(0), timedelta(seconds=30), chance.randrange(0, 60) * HOUR])
        ends = None if chance.random() < 0.3 else starts + chance.randrange(1, 50) * HOUR
        by_hand = masks_by_hand(claims, nodes, {stopped_node: 8}, starts, ends)
        found = connection.execute(
            "select node_id, mask from nodes_in_window(1, %s, %s, %s, null, %s::smallint[], 100)",
            (starts, ends, NOW, classes),
        ).fetchall()
        assert dict(found) == {node: mask for node, mask in by_hand.items() if node in near}
        assert all(by_hand[node] & mask == mask for node, mask in always.items()), "free for ever is free in any window"
        assert all(by_hand[node] == always[node] for node in nodes if node not in near)
        assert totals(connection, starts, ends) == sorted(mask.bit_count() for mask in by_hand.values())


def fits_for_ever(claim: Drawn) -> bool:
    """Whether the materialised fit says all there is to say about it: it holds its slots from before now on."""
    return claim.booked and claim.ends is None and claim.starts <= NOW and not claim.overdue


def totals(connection: psycopg.Connection[Any], starts: datetime, ends: datetime | None) -> list[int]:
    """How many slots of each node are free throughout the window, from the packed pools."""
    row = connection.execute("select fixed, nodes, blocks from pools_in_time('{1}', %s, %s)", (starts, NOW)).fetchone()
    assert row is not None
    ground = unpack_grounds(PackedGrounds(row[0], row[1], row[2]), [1])[1]
    free = [node.mask for node in ground.nodes]
    for place, begins, until, mask in ground.blocks:
        assert until > micros(starts)
        if ends is None or begins < micros(ends):
            free[place] &= ~mask
    fixed = [count for (_, count), number in ground.fixed.items() for _ in range(number)]
    return sorted(fixed + [mask.bit_count() for mask in free])


def test_the_best_class_comes_first_and_then_the_rank(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=3)
    rows = fleet.connection.execute("select id, unit_base from nodes order by id").fetchall()
    for place, (node, base) in enumerate(rows):
        taken = {0: [0, 1], 1: [0, 1, 2], 2: [0, 1, 2]}[place]
        fleet.connection.execute("update nodes set placement_rank = %s where id = %s", (10 - place, node))
        claim = {
            "node": node, "owner": uuid4(), "units": [base + slot for slot in taken], "now": NOW, "kind": "reservation",
            "during": TimestamptzRange(NOW, NOW + HOUR), "booked": True, "occupied": False, "created": NOW, "until": None,
        }  # fmt: skip
        fleet.connection.execute(CLAIM, claim)
    found = fleet.connection.execute(
        "select node_id from nodes_in_window(1, %s, null, %s, null, %s::smallint[], 2)",
        (NOW, NOW, [1 * 64 + 4, 2 * 64 + 4]),
    ).fetchall()
    assert [row[0] for row in found] == [rows[2][0], rows[1][0]], "the tightest, the lower rank first; the limit holds"
