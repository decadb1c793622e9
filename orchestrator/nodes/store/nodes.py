"""The fleet as operators register, see and steer it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import literal_column, select, text

from berth.process.json_objects import JsonObject
from orchestrator.catalogue.shapes import SLOTS_MAX
from orchestrator.catalogue.store import require_region
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.states import NodeState, ShownState
from orchestrator.nodes.store.drains import drain_document
from orchestrator.nodes.store.shown_states import NARROWED, SHOWN_STATE
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.nodes.tables import nodes
from orchestrator.problems import AlreadyExists, NotFound


@dataclass(frozen=True, slots=True)
class Slot:
    """One GPU unit of a node, as `SlotState` says. `holder`: the owner of the claim on it; `code`: why it is blocked."""

    index: int
    unit: int
    numa_half: int
    state: str
    reason: str | None
    holder: UUID | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the fleet. `state`: a `ShownState`; `drained`: it is draining and no claim is open on it."""

    id: UUID
    name: str
    region: str
    gpu_model: str
    shape: str
    slot_count: int
    half_slots: int
    state: str
    online: bool
    free_slots: int
    cleanup_blocked_slots: int
    drained: bool
    epoch: int
    hardware_id: str | None
    address: str | None
    faults: dict[str, str]
    enrolled_at: datetime | None
    last_seen_at: datetime | None
    identity_conflict_at: datetime | None
    agent_version: str | None
    driver: str | None
    key_set_serial: int | None
    key_set_refusal: str | None
    attestation: str
    attestation_from: str
    ek_sha256: str | None
    attested_at: datetime | None
    row_version: int


_DERIVED = {
    "state": SHOWN_STATE,
    "free_slots": "bit_count(free_mask::bit(64))::integer",
    "cleanup_blocked_slots": """
        (select coalesce(sum(upper(part) - lower(part)), 0)::integer from claims c cross join lateral unnest(c.units) part
         where c.node_id = nodes.id and c.waits_for in ('operator', 'force_release'))""",
    "attestation": """
        (select case when t.policy <> 'offered' or t.policy_is_set then t.policy else coalesce(a.policy, 'offered') end
         from (select) one left join node_tpms t on t.node_id = nodes.id
              left join pool_attestations a on a.pool_id = nodes.pool_id)""",
    "attestation_from": """
        (select case when t.policy <> 'offered' or t.policy_is_set then 'node'
                     when a.policy is not null then 'pool' else 'default' end
         from (select) one left join node_tpms t on t.node_id = nodes.id
              left join pool_attestations a on a.pool_id = nodes.pool_id)""",
    "ek_sha256": "(select encode(t.ek_sha256, 'hex') from node_tpms t where t.node_id = nodes.id)",
    "attested_at": "(select t.attested_at from node_tpms t where t.node_id = nodes.id)",
    "drained": """
        (nodes.state = 'draining' and not exists (select from claims c where c.node_id = nodes.id and c.closed_at is null
                                            and c.owner_kind <> 'maintenance'))""",
}
_NODES = select(
    *(literal_column(_DERIVED[name]).label(name) if name in _DERIVED else nodes.c[name] for name in Node.__slots__)
).select_from(nodes)
# A claim precedes everything, its occupant now the next holder; an unclaimed slot is free only where
# something could be placed.
_SLOTS = """
select s.slot_index as index, s.unit, s.numa_half, held.owner_id as holder,
       case when held.blocked then 'cleanup_blocked'
            when held.occupied and held.owner_kind <> 'maintenance' then 'allocated'
            when held.owner_id is not null then 'held'
            when s.state = 'out_of_service' or n.state <> 'active' or not n.online then 'out_of_service'
            else 'free' end as state,
       case when held.owner_id is not null then null
            when s.state = 'out_of_service' then coalesce(s.reason, 'the slot is out of service')
            when n.state <> 'active' then 'the node is ' || n.state
            when not n.online then 'the node is offline' end as reason,
       case when held.blocked then case a.state when 'failed' then 'cleanup_exhausted' else a.failure_code end end as code
from slots s join nodes n on n.id = s.node_id
left join lateral (
    select c.owner_kind, c.owner_id, c.occupied, coalesce(c.waits_for in ('operator', 'force_release'), false) as blocked
    from claims c
    where c.node_id = s.node_id and c.closed_at is null and c.units @> s.unit
    order by c.occupied desc, lower(c.during), c.id limit 1
) held on true
left join allocations a on held.owner_kind = 'allocation' and a.id = held.owner_id
where s.node_id = :node_id order by s.slot_index
"""
_POOL = """
insert into pools (region, gpu_model, shape) values (:region, :gpu_model, :shape) on conflict do nothing
"""
_UNITS = """
select min(unit) as first, max(unit) as last
from (select nextval('unit_numbers') as unit from generate_series(1, :n)) block
"""
_INSERT = """
insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, free_mask, fit_class,
                   address, faults)
select :name, p.id, p.region, p.gpu_model, p.shape, :slot_count, :half_slots, :unit_base, :free_mask,
       :half_slots * 64 + (:slot_count - :half_slots), cast(:address as text),
       cast(:faults as jsonb)
from pools p where p.region = :region and p.gpu_model = :gpu_model and p.shape = :shape
on conflict (name) do nothing
returning id
"""
_SET_SLOTS = """
update nodes set slot_count = :slot_count, half_slots = :half_slots where id = :node_id and slot_count = 0 returning unit_base
"""
_INSERT_SLOTS = """
insert into slots (unit, node_id, slot_index, numa_half)
select :unit_base + i, :node_id, i, (i >= :half_slots)::integer from generate_series(0, :slot_count - 1) i
"""
_SPREAD_ORPHANS = """
update node_orphans set slots = array(select generate_series(0, :slot_count - 1)), row_version = row_version + 1
where node_id = :node_id and state <> 'destroyed' and slots = '{}'
"""


async def insert_node(
    tx: Transaction,
    *,
    name: str,
    region: str,
    gpu_model: str,
    shape: str,
    slot_count: int,
    half_slots: int,
    address: str | None,
    faults: dict[str, str],
) -> Node:
    """A registered node with its slots, all free, on a new block of consecutive unit numbers.

    Without slots its block has room for the most that a node has.
    Raises `NotFound` if there is no such region, `AlreadyExists` if the name is taken.
    """
    await require_region(tx, region)
    place = {"region": region, "gpu_model": gpu_model, "shape": shape}
    layout = {
        "slot_count": slot_count,
        "half_slots": half_slots,
        "unit_base": await _take_units(tx, slot_count or SLOTS_MAX),
    }
    await tx.execute(_POOL, place)
    given = {"name": name, "address": address, "faults": json.dumps(faults), "free_mask": (1 << slot_count) - 1}
    made = (await tx.execute(_INSERT, {**place, **layout, **given})).first()
    if made is None:
        there = (await tx.execute("select id from nodes where name = :name", {"name": name})).scalar_one()
        raise AlreadyExists(f"there is already a node called {name!r}", existing_id=there)
    await tx.execute(_INSERT_SLOTS, {**layout, "node_id": made.id})
    return await read_node(tx, made.id)


async def add_slots(tx: Transaction, node_id: UUID, slot_count: int, half_slots: int) -> None:
    """A locked node without slots gets so many on the block that it was registered with.

    They are in service, unless the node has an orphan, which may be on each of them.
    """
    made = {"node_id": node_id, "slot_count": slot_count, "half_slots": half_slots}
    unit_base = (await tx.execute(_SET_SLOTS, made)).scalar_one()
    await tx.execute(_INSERT_SLOTS, {**made, "unit_base": unit_base})
    await tx.execute(_SPREAD_ORPHANS, made)
    await keep_slots(tx, node_id)


async def _take_units(tx: Transaction, count: int) -> int:
    """The first of `count` consecutive unit numbers. Takers go one by one; a gap left by a rollback is harmless."""
    await tx.execute("select pg_advisory_xact_lock('unit_numbers'::regclass::oid::bigint)")
    block = (await tx.execute(_UNITS, {"n": count})).one()
    if block.last - block.first + 1 != count:
        raise RuntimeError("unit_numbers is drawn from elsewhere, without its lock")
    first: int = block.first
    return first


async def read_node(reading: Reading, node_id: UUID) -> Node:
    """One node, or `NotFound`."""
    row = (await reading.execute(_NODES.where(nodes.c.id == node_id))).first()
    if row is None:
        raise NotFound(f"there is no node {node_id}")
    return Node(**row._mapping)


async def read_node_by_name(reading: Reading, name: str) -> Node:
    """One node, or `NotFound`."""
    row = (await reading.execute(_NODES.where(nodes.c.name == name))).first()
    if row is None:
        raise NotFound(f"there is no node called {name!r}")
    return Node(**row._mapping)


async def list_nodes(
    reading: Reading, *, state: ShownState | None, region: str | None, after: UUID, limit: int
) -> list[Node]:
    """Up to `limit` nodes in the order in which they were registered."""
    page = _NODES.where(nodes.c.id > after).order_by(nodes.c.id).limit(limit)
    if state is not None:
        page = page.where(text(NARROWED[state]), literal_column(SHOWN_STATE) == state.value)
    if region is not None:
        page = page.where(nodes.c.region == region)
    return [Node(**row._mapping) for row in await reading.execute(page)]


async def read_slots(reading: Reading, node_id: UUID) -> list[Slot]:
    """The node's slots by index, and the holder of each now."""
    return [Slot(**row._mapping) for row in await reading.execute(_SLOTS, {"node_id": node_id})]


async def node_document(reading: Reading, node: Node) -> JsonObject:
    """The node as clients see it, with its slots and its drain."""
    members = {name: getattr(node, name) for name in Node.__slots__}
    return {
        **members,
        "drain": await drain_document(reading, node.id),
        "slots": [{name: getattr(s, name) for name in Slot.__slots__} for s in await read_slots(reading, node.id)],
    }


async def lock_node(tx: Transaction, node_id: UUID) -> NodeState:
    """The node's state, which stays so until the transaction ends. Raises `NotFound`."""
    row = (await tx.execute("select state from nodes where id = :id for no key update", {"id": node_id})).first()
    if row is None:
        raise NotFound(f"there is no node {node_id}")
    return NodeState(row.state)


async def set_node_state(tx: Transaction, node_id: UUID, state: NodeState) -> None:
    """The node, locked by the caller, is in this state from the commit on."""
    await tx.execute(
        "update nodes set state = :state, row_version = row_version + 1 where id = :id",
        {"id": node_id, "state": state.value},
    )


async def set_node_offline(tx: Transaction, node_id: UUID) -> None:
    """Nothing is placed on the node until it is heard of again."""
    await tx.execute("update nodes set online = false, row_version = row_version + 1 where id = :id", {"id": node_id})
