"""SQL of segments and of ports of machines.

Segments are leased under the lock of the site's row. They are returned under the lock of
the segment, while that of the site is shared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.wire.switches import PortFound
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.networks.store.vlans import LOCK_POOL
from orchestrator.sites.ports.rules import Place, Port, isolation_of


@dataclass(frozen=True, slots=True)
class SiteSegments:
    """The segments of a site."""

    site_id: UUID
    provisioning_vlan: int
    first_vlan: int
    last_vlan: int
    quarantine_seconds: int
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class TenantSegment:
    """A segment that a tenant has, or had until `free_at`; `machines`: how many may carry it."""

    vlan: int
    tenant_id: UUID
    fence: int
    leased_at: datetime
    returned_at: datetime | None
    free_at: datetime | None
    machines: int


@dataclass(frozen=True, slots=True)
class NodeSegment:
    """Where the ports of a machine are to be, and when that was proven last; None: the newest task has not proven it."""

    site_id: UUID
    place: Place
    vlan: int | None
    tenant_vlan: int | None
    task_id: UUID | None
    changed_at: datetime
    proven_at: datetime | None
    isolation: str | None
    found: list[JsonObject] | None
    """Of the last proof, which may be that of an earlier task."""


_SEGMENTS = """
select s.site_id, s.provisioning_vlan, s.first_vlan, s.last_vlan, s.quarantine_seconds, s.changed_at, s.changed_by
from site_segments s where s.site_id = :site_id
"""
_PUT_SEGMENTS = """
insert into site_segments (site_id, provisioning_vlan, first_vlan, last_vlan, quarantine_seconds, changed_by)
values (:site_id, :provisioning_vlan, :first_vlan, :last_vlan, :quarantine_seconds, :by)
on conflict (site_id) do update set provisioning_vlan = excluded.provisioning_vlan, first_vlan = excluded.first_vlan,
    last_vlan = excluded.last_vlan, quarantine_seconds = excluded.quarantine_seconds, changed_at = clock_timestamp(),
    changed_by = excluded.changed_by
"""
_LEASED = """
select t.vlan, t.tenant_id, t.fence, t.leased_at, t.returned_at, t.free_at,
       (select count(*) from node_segments n where n.site_id = t.site_id and n.tenant_vlan = t.vlan) as machines
from tenant_segments t where t.site_id = :site_id order by t.vlan limit 4094
"""
_OUTSIDE = """
select (select count(*) from tenant_segments where site_id = :site_id and vlan not between :first_vlan and :last_vlan) as leased,
       (select count(*) from node_segments where site_id = :site_id) as placed
"""
_OF_NETWORKS = """
select vlan from network_vlans where vlan = :provisioning_vlan or vlan between :first_vlan and :last_vlan order by vlan limit 1
"""
_PORTS = "select switch, port, mac from node_ports where node_id = :node_id order by switch, port"
_HAS_PORTS = "select exists (select from node_ports where node_id = :node_id)"
_IS_OUTSIDE = """
select exists (select from node_ports p left join node_segments s on s.node_id = p.node_id
               where p.node_id = :node_id and (s.proven_at is null or s.place <> 'tenant'))
"""
_TAKEN = """
select switch, port, mac, node_id from node_ports
where site_id = :site_id and node_id <> :node_id
  and ((switch, port) in (select * from unnest(cast(:switches as text[]), cast(:ports as text[]))) or mac = any (:macs))
order by switch, port limit 1
"""
_FORGET_PORTS = "delete from node_ports where node_id = :node_id"
_FORGET_SEGMENT = "delete from node_segments where node_id = :node_id"
_ADD_PORTS = """
insert into node_ports (node_id, site_id, switch, port, mac, set_by)
select :node_id, :site_id, given.switch, given.port, given.mac, :by
from unnest(cast(:switches as text[]), cast(:ports as text[]), cast(:macs as text[])) given(switch, port, mac)
"""
_NODE_SEGMENT = """
select n.site_id, n.place, n.vlan, n.tenant_vlan, n.task_id, n.changed_at, n.proven_at, n.isolation, n.found
from node_segments n where n.node_id = :node_id
"""
_WANT = """
insert into node_segments (node_id, site_id, place, task_id) values (:node_id, :site_id, :place, :task_id)
on conflict (node_id) do update set place = excluded.place, task_id = excluded.task_id, proven_at = null, isolation = null,
    vlan = case when excluded.place = 'tenant' then node_segments.tenant_vlan end, changed_at = clock_timestamp()
"""
_COMPARE = "update node_segments set task_id = :task_id, changed_at = clock_timestamp() where node_id = :node_id"
_NAME = "update node_segments set vlan = :vlan where node_id = :node_id"
_LEASE_TO = "update node_segments set vlan = :vlan, tenant_vlan = :vlan where node_id = :node_id"
_PROVE = """
update node_segments set proven_at = clock_timestamp(), isolation = :isolation, found = cast(:found as jsonb),
    tenant_vlan = case when place = 'tenant' then tenant_vlan end
where node_id = :node_id and task_id = :task_id
"""
_DOUBT = """
update node_segments set proven_at = null, isolation = null where node_id = :node_id and task_id = :task_id
"""
_KEEP = """
update tenant_segments set returned_at = null, free_at = null where site_id = :site_id and tenant_id = :tenant_id returning vlan
"""
_FREE = "delete from tenant_segments where site_id = :site_id and free_at <= clock_timestamp()"
_LEASE = """
insert into tenant_segments (site_id, vlan, tenant_id, fence)
select s.site_id, free.vlan, :tenant_id, nextval('fences')
from site_segments s cross join lateral (
    select candidate.vlan from generate_series(s.first_vlan, s.last_vlan) candidate(vlan)
    where not exists (select from tenant_segments t where t.site_id = s.site_id and t.vlan = candidate.vlan)
    order by candidate.vlan limit 1) free
where s.site_id = :site_id
returning vlan
"""
# A retired machine too: retiring does not move its ports, so they may carry any VLAN until `berth node port remove`.
_IS_UNKNOWN = """
select exists (select from awaited_inventories w join node_ports p on p.node_id = w.node_id where p.site_id = :site_id)
"""
_LOCK_SEGMENT = "select from tenant_segments where site_id = :site_id and vlan = :vlan for update"
_RETURN = """
update tenant_segments t
set returned_at = c.now, free_at = c.now + make_interval(secs => s.quarantine_seconds)
from site_segments s, (select clock_timestamp() as now) c
where t.site_id = :site_id and t.vlan = :vlan and s.site_id = t.site_id and t.returned_at is null
  and not exists (select from node_segments n where n.site_id = t.site_id and n.tenant_vlan = t.vlan)
returning t.tenant_id
"""
_TENANT_OF = "select tenant_id from allocations where id = :allocation_id"
_OCCUPANT = """
select a.tenant_id from claims c join allocations a on a.id = c.owner_id
where c.node_id = :node_id and c.owner_kind = 'allocation' and c.closed_at is null and c.occupied
order by c.id limit 1
"""
_IS_OF = """
select exists (select from tenant_segments where site_id = :site_id and vlan = :vlan and tenant_id = :tenant_id)
"""
_DELETE = (
    "delete from tenant_segments where site_id = :site_id",
    "delete from site_segments where site_id = :site_id",
)


async def read_segments(reading: Reading, site_id: UUID) -> SiteSegments | None:
    """The segments of a site; None if none are set."""
    row = (await reading.execute(_SEGMENTS, {"site_id": site_id})).first()
    return None if row is None else SiteSegments(**row._mapping)


async def put_segments(
    tx: Transaction, site_id: UUID, provisioning_vlan: int, vlans: tuple[int, int], quarantine_seconds: int, by: str
) -> None:
    """The segments of the locked site."""
    values = {
        "site_id": site_id, "provisioning_vlan": provisioning_vlan, "first_vlan": vlans[0], "last_vlan": vlans[1],
        "quarantine_seconds": quarantine_seconds, "by": by,
    }  # fmt: skip
    await tx.execute(_PUT_SEGMENTS, values)


async def list_leased(reading: Reading, site_id: UUID) -> list[TenantSegment]:
    """Every segment of the site that a tenant has, or had a moment ago, by VLAN."""
    return [TenantSegment(**row._mapping) for row in await reading.execute(_LEASED, {"site_id": site_id})]


async def count_bound(tx: Transaction, site_id: UUID, vlans: tuple[int, int]) -> tuple[int, int]:
    """Leased segments of the locked site outside these VLANs, and machines whose ports were placed."""
    await tx.execute(_FREE, {"site_id": site_id})
    values = {"site_id": site_id, "first_vlan": vlans[0], "last_vlan": vlans[1]}
    row = (await tx.execute(_OUTSIDE, values)).one()
    return row.leased, row.placed


async def find_of_networks(tx: Transaction, provisioning_vlan: int, vlans: tuple[int, int]) -> int | None:
    """A VLAN of these that is leased to a network of virtual machines, or in quarantine. Until the commit none can be leased."""
    await tx.execute(LOCK_POOL)
    values = {"provisioning_vlan": provisioning_vlan, "first_vlan": vlans[0], "last_vlan": vlans[1]}
    found: int | None = (await tx.execute(_OF_NETWORKS, values)).scalar()
    return found


async def delete_segments(tx: Transaction, site_id: UUID) -> None:
    """The locked site, which has no machine, has no segments any more."""
    for statement in _DELETE:
        await tx.execute(statement, {"site_id": site_id})


async def read_ports(reading: Reading, node_id: UUID) -> list[Port]:
    """The ports of a machine, by switch and port."""
    return [Port(**row._mapping) for row in await reading.execute(_PORTS, {"node_id": node_id})]


async def has_ports(reading: Reading, node_id: UUID) -> bool:
    """Whether a port of the machine is set."""
    return bool((await reading.execute(_HAS_PORTS, {"node_id": node_id})).scalar_one())


async def is_outside(reading: Reading, node_id: UUID) -> bool:
    """Whether the machine has ports that are not proven to be in a tenant's segment."""
    return bool((await reading.execute(_IS_OUTSIDE, {"node_id": node_id})).scalar_one())


async def find_taken(tx: Transaction, site_id: UUID, node_id: UUID, ports: Sequence[Port]) -> tuple[Port, UUID] | None:
    """A port of the locked site that has one of these places or MACs, and its other machine."""
    values = {
        "site_id": site_id, "node_id": node_id, "switches": [one.switch for one in ports],
        "ports": [one.port for one in ports], "macs": [one.mac for one in ports],
    }  # fmt: skip
    row = (await tx.execute(_TAKEN, values)).first()
    return None if row is None else (Port(row.switch, row.port, row.mac), row.node_id)


async def put_ports(tx: Transaction, node_id: UUID, site_id: UUID, ports: Sequence[Port], by: str) -> None:
    """These are the ports of the locked machine. Where they are is not known until the next task has proven it."""
    await tx.execute(_FORGET_PORTS, {"node_id": node_id})
    await tx.execute(_FORGET_SEGMENT, {"node_id": node_id})
    values = {
        "node_id": node_id, "site_id": site_id, "switches": [one.switch for one in ports],
        "ports": [one.port for one in ports], "macs": [one.mac for one in ports], "by": by,
    }  # fmt: skip
    await tx.execute(_ADD_PORTS, values)


async def read_node_segment(reading: Reading, node_id: UUID) -> NodeSegment | None:
    """Where the ports of a machine are; None if they were never placed."""
    row = (await reading.execute(_NODE_SEGMENT, {"node_id": node_id})).first()
    return None if row is None else NodeSegment(**{**row._mapping, "place": Place(row.place)})


async def want_place(tx: Transaction, node_id: UUID, site_id: UUID, place: Place, task_id: UUID) -> None:
    """The task moves the ports of the locked machine there. A tenant's segment stays leased until another place is proven."""
    values = {"node_id": node_id, "site_id": site_id, "place": place.value, "task_id": task_id}
    await tx.execute(_WANT, values)


async def want_compared(tx: Transaction, node_id: UUID, task_id: UUID) -> None:
    """The task compares the ports of the locked machine with where they are to be."""
    await tx.execute(_COMPARE, {"node_id": node_id, "task_id": task_id})


async def name_segment(tx: Transaction, node_id: UUID, vlan: int | None) -> None:
    """The ports of the locked machine are to carry this VLAN; None: they are shut."""
    await tx.execute(_NAME, {"node_id": node_id, "vlan": vlan})


async def lease_segment(tx: Transaction, node_id: UUID, site_id: UUID, tenant_id: UUID) -> int | None:
    """The segment of the tenant in the locked site, which the locked machine has from now on; None if none is known to be free.

    A segment that was returned is the same tenant's again at once, and another's once its quarantine is over.
    """
    if await is_unknown(tx, site_id):
        return None
    owner = {"site_id": site_id, "tenant_id": tenant_id}
    vlan: int | None = (await tx.execute(_KEEP, owner)).scalar()
    if vlan is None:
        await tx.execute(_FREE, {"site_id": site_id})
        vlan = (await tx.execute(_LEASE, owner)).scalar()
    if vlan is not None:
        await tx.execute(_LEASE_TO, {"node_id": node_id, "vlan": vlan})
    return vlan


async def is_unknown(tx: Transaction, site_id: UUID) -> bool:
    """Whether a machine of the site may carry any VLAN: it has ports, and is awaited since a restore."""
    return bool((await tx.execute(_IS_UNKNOWN, {"site_id": site_id})).scalar_one())


async def read_tenant(tx: Transaction, allocation_id: UUID) -> UUID:
    """The tenant of an allocation."""
    found: UUID = (await tx.execute(_TENANT_OF, {"allocation_id": allocation_id})).scalar_one()
    return found


async def read_occupant(tx: Transaction, node_id: UUID) -> UUID | None:
    """The tenant whose allocation occupies the locked machine, also one that is not wiped yet; None: nothing does."""
    found: UUID | None = (await tx.execute(_OCCUPANT, {"node_id": node_id})).scalar()
    return found


async def is_of_tenant(tx: Transaction, site_id: UUID, vlan: int, tenant_id: UUID) -> bool:
    """Whether the tenant has this segment of the site."""
    values = {"site_id": site_id, "vlan": vlan, "tenant_id": tenant_id}
    return bool((await tx.execute(_IS_OF, values)).scalar_one())


async def note_proven(tx: Transaction, node_id: UUID, task_id: UUID, found: Sequence[PortFound]) -> None:
    """The task has read the ports of the machine where they are to be. Its last machine returns a tenant's segment.

    The caller holds the lock of the BMC's row, and shares that of the site.
    """
    before = await read_node_segment(tx, node_id)
    leaves = before is not None and before.place is not Place.TENANT and before.tenant_vlan is not None
    if before is not None and leaves:
        await tx.execute(_LOCK_SEGMENT, {"site_id": before.site_id, "vlan": before.tenant_vlan})
    values = {
        "node_id": node_id, "task_id": task_id, "isolation": isolation_of(found),
        "found": json.dumps([one.model_dump() for one in found]),
    }  # fmt: skip
    await tx.execute(_PROVE, values)
    if before is not None and leaves:
        await tx.execute(_RETURN, {"site_id": before.site_id, "vlan": before.tenant_vlan})


async def note_doubt(tx: Transaction, node_id: UUID, task_id: UUID) -> None:
    """The task has not proven where the ports of the machine are."""
    await tx.execute(_DOUBT, {"node_id": node_id, "task_id": task_id})
