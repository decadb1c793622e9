"""SQL for resources (nodes, slots, registered ones) and their states, derived from claims (docs/reference/reservations.md).

`row_version` grows with every change of a resource's state, also with those that only time causes: each step that an open
claim made by time alone adds one to the stored value, if nothing occupies its units (`bump_row_versions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Integer,
    Select,
    bindparam,
    column,
    literal_column,
    select,
    text,
    true,
    union_all,
)

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import AlreadyExists
from orchestrator.reservations.refusals import ResourceNotFound
from orchestrator.reservations.resource_names import ResourceName, Slot
from orchestrator.reservations.states import ResourceState
from orchestrator.tenants.principals import Actor

ResourceKind = Literal["node", "slot", "registered"]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource now. `reason`: why it is out of service. `reservation_id`: the caller's reservation whose window includes now.

    `place`: its position in lists, by unit number, a node before its first slot.
    """

    id: str
    kind: ResourceKind
    state: ResourceState
    reason: str | None
    reservation_id: UUID | None
    row_version: int
    place: int

    @property
    def document(self) -> JsonObject:
        """Its JSON."""
        return {name: getattr(self, name) for name in Resource.__slots__ if name != "place"}


_LOCK_UNITS = "select pg_advisory_xact_lock('unit_numbers'::regclass::oid::bigint)"
_FIND = "select from resources where id = :id"
_INSERT = "insert into resources (id) values (:id) on conflict (id) do nothing returning unit"


@dataclass(frozen=True, slots=True)
class _Kind:
    """SQL of one kind of resource: its rows, and what of them a resource is made of."""

    rows: str
    id: str
    kind: str
    node_id: str
    resource_id: str
    units: str
    place: str
    row_version: str
    reason: str

    def where(self, *conditions: str) -> Select[Any]:
        """The resources of this kind that meet every condition."""
        names = [name for name in _Kind.__slots__ if name != "rows"]
        members: list[ColumnElement[Any]] = [literal_column(getattr(self, name)).label(name) for name in names]
        return select(*members).select_from(text(self.rows)).where(*map(text, conditions))


_NODE = _Kind(
    rows="nodes n",
    id="'node:' || n.id",
    kind="'node'",
    node_id="n.id",
    resource_id="null::text",
    units="int8multirange(int8range(n.unit_base, n.unit_base + n.slot_count))",
    place="n.unit_base * 2",
    row_version="n.row_version",
    reason="""
        case when n.state <> 'active' then 'the node is ' || n.state
             when not n.online then 'the node is offline'
             else (select min(coalesce(s.reason, 'a slot is out of service')) from slots s
                   where s.node_id = n.id and s.state = 'out_of_service') end""",
)
_SLOT = _Kind(
    rows="slots s join nodes n on n.id = s.node_id",
    id="'slot:' || n.id || ':' || s.slot_index",
    kind="'slot'",
    node_id="n.id",
    resource_id="null::text",
    units="int8multirange(int8range(s.unit, s.unit + 1))",
    place="s.unit * 2 + 1",
    row_version="n.row_version",
    reason="""
        case when s.state = 'out_of_service' then coalesce(s.reason, 'the slot is out of service')
             when n.state <> 'active' then 'the node is ' || n.state
             when not n.online then 'the node is offline' end""",
)
_REGISTERED = _Kind(
    rows="resources r",
    id="r.id",
    kind="'registered'",
    node_id="null::uuid",
    resource_id="r.id",
    units="int8multirange(int8range(r.unit, r.unit + 1))",
    place="r.unit * 2 + 1",
    row_version="r.row_version",
    reason="case when r.state = 'out_of_service' then coalesce(r.reason, 'it is out of service') end",
)
_NOT_RETIRED = "n.state <> 'retired' and n.slot_count > 0"
_NOW = text("""
select bool_or(c.blocked and c.units && w.units) as blocked,
       bool_or((c.occupied and c.owner_kind <> 'maintenance'
                or c.covers and (c.owner_kind = 'allocation' or r.state = 'confirmed')) and c.units && w.units) as confirmed,
       bool_or(c.covers and r.state = 'hold' and c.units && w.units) as reserved,
       bool_or((c.covers or c.occupied) and c.owner_kind = 'maintenance' and c.units && w.units) as maintained,
       (array_agg(r.id order by c.id) filter (where c.covers and c.units && w.units
           and (cast(:tenant_id as uuid) is null or c.tenant_id = :tenant_id) and r.id is not null))[1] as reservation_id,
       sum(coalesce(upper(c.during) <= c.clock, false)::integer
           + case c.owner_kind
                  when 'reservation' then (lower(c.during) <= c.clock)::integer + (r.state = 'confirmed')::integer
                  when 'maintenance' then (lower(c.during) <= c.clock)::integer else 0 end)
           filter (where c.owner_kind <> 'allocation' or not c.occupied) as steps
from (
    select *, booked and during @> statement_timestamp() as covers, statement_timestamp() as clock,
           coalesce(waits_for in ('operator', 'force_release'), false) as blocked
    from claims where closed_at is null and node_id = w.node_id
    union all
    select *, booked and during @> statement_timestamp(), statement_timestamp(), false
    from claims where closed_at is null and resource_id = w.resource_id
) c left join reservation_states r on c.owner_kind = 'reservation' and r.id = c.owner_id
""").columns(*map(column, ("blocked", "confirmed", "reserved", "maintained", "reservation_id", "steps")))
_ROW_VERSION = "w.row_version + coalesce(now.steps, 0)"
_STATE = """
case when now.blocked then 'cleanup_blocked' when now.confirmed then 'confirmed' when now.reserved then 'reserved'
     when w.reason is not null or now.maintained then 'out_of_service' else 'available' end"""
_REASON = """
case when now.blocked or now.confirmed or now.reserved then null
     else coalesce(w.reason, case when now.maintained then 'a maintenance window is active' end) end"""


def _show(wanted: Select[Any] | CompoundSelect[Any]) -> Select[Any]:
    """The wanted resources with their states now, in order."""
    w, now = wanted.cte("wanted").prefix_with("materialized").alias("w"), _NOW.lateral("now")
    return (
        select(
            w.c.id,
            w.c.kind,
            w.c.place,
            literal_column(_ROW_VERSION).label("row_version"),
            literal_column(_STATE).label("state"),
            literal_column(_REASON).label("reason"),
            now.c.reservation_id,
        )
        .select_from(w.outerjoin(now, true()))
        .order_by(w.c.place)
    )


_SHOW_NODE = _show(_NODE.where(_NOT_RETIRED, "n.id = :node_id"))
_SHOW_SLOT = _show(_SLOT.where(_NOT_RETIRED, "s.node_id = :node_id", "s.slot_index = :slot_index"))
_SHOW_REGISTERED = _show(_REGISTERED.where("r.id = :id"))
_LIMIT = bindparam("limit", type_=Integer)
_PAGES = {
    "node": _NODE.where(_NOT_RETIRED, "n.unit_base > :last_node").order_by(text("n.unit_base")).limit(_LIMIT),
    "slot": _SLOT.where(_NOT_RETIRED, "s.unit >= :next_unit").order_by(text("s.unit")).limit(_LIMIT),
    "registered": _REGISTERED.where("r.unit >= :next_unit").order_by(text("r.unit")).limit(_LIMIT),
}
_LIST_OF_KIND = {kind: _show(page) for kind, page in _PAGES.items()}
_LIST_OF_ALL = _show(union_all(*_PAGES.values()).order_by(text("place")).limit(_LIMIT))


async def require_new_resource(tx: Transaction, resource_id: str) -> None:
    """Raise `AlreadyExists` if the id is registered."""
    if (await tx.execute(_FIND, {"id": resource_id})).first() is not None:
        raise _already_there(resource_id)


async def insert_resource(tx: Transaction, resource_id: str) -> int:
    """Register a resource, in service; return its unit number. Raises `AlreadyExists`."""
    await tx.execute(_LOCK_UNITS)
    unit: int | None = (await tx.execute(_INSERT, {"id": resource_id})).scalar_one_or_none()
    if unit is None:
        raise _already_there(resource_id)
    return unit


def _already_there(resource_id: str) -> AlreadyExists:
    return AlreadyExists(
        f"a resource {resource_id!r} is registered already; choose another id", existing_id=resource_id
    )


async def read_resource(reading: Reading, name: ResourceName, tenant_id: UUID | None) -> Resource | None:
    """One resource for a tenant, or for operators if `tenant_id` is None; None if there is none."""
    if isinstance(name, UUID):
        found = await reading.execute(_SHOW_NODE, {"node_id": name, "tenant_id": tenant_id})
    elif isinstance(name, Slot):
        values = {"node_id": name.node, "slot_index": name.index, "tenant_id": tenant_id}
        found = await reading.execute(_SHOW_SLOT, values)
    else:
        found = await reading.execute(_SHOW_REGISTERED, {"id": name, "tenant_id": tenant_id})
    row = found.first()
    return None if row is None else Resource(**row._mapping)


async def list_resources(
    reading: Reading, tenant_id: UUID | None, *, kind: ResourceKind | None, after: int, limit: int
) -> list[Resource]:
    """Up to `limit` resources after this position, of one kind if given."""
    sql = _LIST_OF_ALL if kind is None else _LIST_OF_KIND[kind]
    # A node's place is twice its first unit, a unit's own is one more than that.
    values = {"tenant_id": tenant_id, "last_node": after // 2, "next_unit": (after + 1) // 2, "limit": limit}
    rows = await reading.execute(sql, values)
    return [Resource(**row._mapping) for row in rows]


IN_SERVICE, OUT_OF_SERVICE = "in_service", "out_of_service"
_LOCK_SERVICE = "select state, reason from resources where id = :id for no key update"
_SET_SERVICE = "update resources set state = :state, reason = :reason, row_version = row_version + 1 where id = :id"


async def change_service(
    tx: Transaction, resource_id: str, reason: str | None, actor: Actor, operation: Operation
) -> JsonObject:
    """Take the resource out of service with a reason, or back into service without one; return its document.

    Its holder keeps it. A repetition is audited, but changes and emits nothing. Raises `ResourceNotFound`.
    """
    before = (await tx.execute(_LOCK_SERVICE, {"id": resource_id})).first()
    if before is None:
        raise ResourceNotFound(
            f"there is no registered resource {resource_id!r}; GET /api/v1/resources?kind=registered lists them",
            resources=[resource_id],
        )
    state = IN_SERVICE if reason is None else OUT_OF_SERVICE
    said = {"from": before.state, "to": state, **({} if reason is None else {"reason": reason})}
    subject = f"resources/{resource_id}"
    if (before.state, before.reason) != (state, reason):
        await tx.execute(_SET_SERVICE, {"id": resource_id, "state": state, "reason": reason})
        event = EventType.RESOURCE_IN_SERVICE if reason is None else EventType.RESOURCE_OUT_OF_SERVICE
        payload = {"resource_id": resource_id, **said}
        await append_event(tx, Event(event, subject, uuid4(), None, payload, operation.key, operation.request_id))
    await audit.record(tx, actor, f"resource.{state}", subject, said, operation.request_id)
    after = await read_resource(tx, resource_id, None)
    assert after is not None, "a locked resource can be read"
    return after.document
