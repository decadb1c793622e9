"""SQL of VLANs: one is leased to a network with its first guest on a node that is connected by VLANs.

The network keeps it while it has guests, and for a quarantine afterwards. The caller holds the lock of the network's row.
VLANs of one region are leased under an advisory lock; a row of another network is never waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from node_agent.wire.networks import VLAN_FEATURE
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.networks.rules import NetworkFull, NetworkLimits

LOCK_POOL = "select pg_advisory_xact_lock(hashtext('networks'))"
"""Held by each transaction that leases a subnet or a VLAN, or takes VLANs for sites."""
VLANS_MAX = 4_094
"""Of a region."""
_HAS = """
select exists (select from network_vlans v join networks w on w.id = v.network_id
               where w.tenant_id = :tenant_id and w.region = :region)
"""
# Guests on other nodes carry no VLAN, so they do not keep it in use.
_HELD = """
select v.vlan, v.left_at is not null and not exists (
    select from network_addresses x join allocations a on a.id = x.allocation_id join nodes n on n.id = a.node_id
    where x.network_id = v.network_id and :feature = any (n.agent_features)) as is_left
from network_vlans v where v.network_id = :network_id for update of v
"""
_CURRENT = "select vlan from network_vlans where network_id = :network_id and left_at is null for update"
# A network that uses its VLAN again is not left any more: a rival that waits for this row sees so (`_RECLAIM`).
_USE = "update network_vlans set left_at = null where network_id = :network_id"
_LEASE = """
insert into network_vlans (region, vlan, network_id)
select :region, vlan, :network_id from unnest(cast(:vlans as int[])) vlan
where not exists (select from network_vlans v where v.region = :region and v.vlan = vlan.vlan)
  and not exists (select from site_segments s
                  where vlan.vlan = s.provisioning_vlan or vlan.vlan between s.first_vlan and s.last_vlan)
order by vlan.vlan limit 1
returning vlan
"""
# What a worker of the version before closed says nothing, nor a lease that ended without a guest: the quarantine begins when it
# is found.
_MARK = """
with left_unsaid as (
    select v.region, v.vlan from network_vlans v
    where v.left_at is null and (cast(:region as text) is null or v.region = :region)
      and v.network_id is distinct from cast(:network_id as uuid)
      and not exists (select from network_addresses x where x.network_id = v.network_id)
    order by v.region, v.vlan limit :limit for update skip locked
)
update network_vlans v set left_at = clock_timestamp() from left_unsaid u where (v.region, v.vlan) = (u.region, u.vlan)
"""
# An inventory that was gathered since the VLAN was left shows that no guest of then is at the node: a record that an agent
# restarts, or an orphan that waits for a decision, may carry any VLAN. An entry is judged as orphans are (`_UNEXPLAINED` of
# orchestrator/nodes/store/inventories.py). As text: Python has no infinite time.
_CLEAN_SINCE = """
select n.name, coalesce(n.inventory_after, '-infinity')::text as since,
       exists (select from node_orphans o where o.node_id = n.id and o.state <> 'destroyed') or exists (
           select from jsonb_to_recordset(n.inventory) as h(allocation_id uuid)
           left join allocations a on a.id = h.allocation_id left join claims c on c.id = a.claim_id
           where (a.id is null or a.node_id <> n.id or c.closed_at < n.inventory_after)
             and not exists (select from node_orphans d where d.node_id = n.id and d.allocation_id = h.allocation_id
                             and d.state = 'destroyed' and d.destroyed_at >= n.inventory_after)) as is_unclear
from nodes n where n.region = :region and n.state <> 'retired' and :feature = any (n.agent_features)
order by is_unclear desc, n.inventory_after nulls first, n.name limit 1
"""
_RECLAIM = """
with idle as (
    select v.region, v.vlan from network_vlans v
    where v.region = :region and v.left_at < clock_timestamp() - make_interval(secs => cast(:quarantine as float8))
      and v.left_at < cast(:clean_since as timestamptz)
      and not exists (select from network_addresses x where x.network_id = v.network_id)
    order by v.vlan limit :limit for update skip locked
)
delete from network_vlans v using idle i where (v.region, v.vlan) = (i.region, i.vlan)
  and not exists (select from network_addresses x where x.network_id = v.network_id)
"""
_OVER = """
select distinct v.region from network_vlans v
where v.left_at < clock_timestamp() - make_interval(secs => cast(:quarantine as float8)) order by v.region
"""
_AWAITED = """
select n.name from awaited_inventories w join nodes n on n.id = w.node_id
where n.region = :region and n.state <> 'retired' and :feature = any (n.agent_features) order by n.name limit 1
"""
# Without a restore no other network ever had a VLAN that this one has.
_LOST = """
select n.name from nodes n
where exists (select from restores) and n.region = :region and n.state <> 'retired' and :feature = any (n.agent_features)
  and (exists (select from node_orphans o left join allocations a on a.id = o.allocation_id
               where o.node_id = n.id and o.state <> 'destroyed' and a.id is null)
       or exists (select from jsonb_to_recordset(n.inventory) as h(allocation_id uuid)
                  left join allocations a on a.id = h.allocation_id
                  where a.id is null and not exists (
                      select from node_orphans d where d.node_id = n.id and d.allocation_id = h.allocation_id
                      and d.state = 'destroyed' and d.destroyed_at >= n.inventory_after)))
order by n.name limit 1
"""
_WAITING = """
select count(*) as held,
       count(*) filter (where exists (select from network_addresses x where x.network_id = v.network_id)) as used
from network_vlans v where v.region = :region and v.vlan = any (cast(:vlans as int[]))
"""


@dataclass(frozen=True, slots=True)
class Clean:
    """Since when no node of a region carries what was left before; `unclear`: why not even that is known.

    `since`: a time of PostgreSQL as text, which may be infinite.
    """

    since: str
    unclear: str | None


async def use_vlan(tx: Transaction, network_id: UUID) -> int | None:
    """The VLAN of the locked network, for a guest on a node that carries none; None if it has none, or left it."""
    found: int | None = (await tx.execute(_CURRENT, {"network_id": network_id})).scalar()
    return found


async def begin_lease(tx: Transaction, tenant_id: UUID, region: str) -> Clean | None:
    """What a lease needs before the network's row is locked, if the tenant's network has no VLAN; else None.

    A lease that makes a network takes the pool's lock before the row: the other order would be a deadlock. Nodes are read before
    the lock, which one transaction at a time has: what is left later is later than the time that is returned.
    """
    if (await tx.execute(_HAS, {"tenant_id": tenant_id, "region": region})).scalar_one():
        return None
    clean = await _read_clean(tx, region)
    await tx.execute(LOCK_POOL)
    return clean


async def lease_vlan(
    tx: Transaction, network_id: UUID, region: str, limits: NetworkLimits, clean: Clean | None = None
) -> int:
    """Lease a VLAN to the locked network, or return the one that it has. Raises `NetworkFull`.

    `clean`: what `begin_lease` returned.
    """
    of_region = {"region": region, "feature": VLAN_FEATURE}
    held = (await tx.execute(_HELD, {"network_id": network_id, "feature": VLAN_FEATURE})).first()
    if held is not None:
        if held.is_left:
            await _require_arrived(tx, region)
            if (lost := (await tx.execute(_LOST, of_region)).scalar()) is not None:
                raise NetworkFull(_unclear(region, lost))
        await tx.execute(_USE, {"network_id": network_id})
        vlan: int = held.vlan
        return vlan
    if not limits.vlans:
        raise NetworkFull("no VLAN can be leased: BERTH_NETWORK_VLANS of the workers names none")
    if clean is None:
        clean = await _read_clean(tx, region)
    await tx.execute(LOCK_POOL)
    await _require_arrived(tx, region)
    if clean.unclear is not None:
        raise NetworkFull(clean.unclear)
    wanted = {"region": region, "network_id": network_id, "vlans": list(limits.vlans)}
    leased: int | None = (await tx.execute(_LEASE, wanted)).scalar()
    if leased is None:
        await tx.execute(_MARK, {"region": region, "network_id": network_id, "limit": VLANS_MAX})
        await _reclaim(tx, region, clean, limits.vlan_quarantine_seconds, VLANS_MAX)
        leased = (await tx.execute(_LEASE, wanted)).scalar()
    if leased is None:
        raise NetworkFull(await _why_full(tx, region, limits))
    return leased


async def mark_left(tx: Transaction, limit: int) -> int:
    """Begin the quarantine of at most `limit` VLANs of networks without a guest; return how many."""
    marked: int = (await tx.execute(_MARK, {"region": None, "network_id": None, "limit": limit})).rowcount
    return marked


async def find_regions_over(reading: Reading, quarantine_seconds: float) -> list[str]:
    """Regions that have VLANs whose quarantine is over."""
    return list((await reading.execute(_OVER, {"quarantine": quarantine_seconds})).scalars())


async def free_left(tx: Transaction, region: str, quarantine_seconds: float, limit: int) -> int:
    """End at most `limit` leases of the region whose quarantine is over, unless a node may carry the VLAN; return how many."""
    return await _reclaim(tx, region, await _read_clean(tx, region), quarantine_seconds, limit)


async def _reclaim(tx: Transaction, region: str, clean: Clean, quarantine_seconds: float, limit: int) -> int:
    if clean.unclear is not None:
        return 0
    values = {"region": region, "quarantine": quarantine_seconds, "clean_since": clean.since, "limit": limit}
    freed: int = (await tx.execute(_RECLAIM, values)).rowcount
    return freed


async def _read_clean(reading: Reading, region: str) -> Clean:
    row = (await reading.execute(_CLEAN_SINCE, {"region": region, "feature": VLAN_FEATURE})).first()
    if row is None:
        return Clean("infinity", None)
    if row.is_unclear:
        return Clean("-infinity", _unclear(region, row.name))
    if row.since == "-infinity":
        return Clean(
            row.since,
            f"no VLAN of {region} is known to be free: node {row.name} has sent no inventory; wait for it, or retire the node",
        )
    return Clean(row.since, None)


def _unclear(region: str, node: str) -> str:
    return (
        f"no VLAN of {region} is known to be free: node {node} has guests that nothing explains, which may carry any;"
        " decide about its orphans, or retire it"
    )


async def _require_arrived(tx: Transaction, region: str) -> None:
    awaited = (await tx.execute(_AWAITED, {"region": region, "feature": VLAN_FEATURE})).scalar()
    if awaited is not None:
        raise NetworkFull(
            f"no VLAN of {region} is known to be free: node {awaited} is awaited since the restore, and may carry any;"
            " wait for its inventory, or retire it"
        )


async def _why_full(tx: Transaction, region: str, limits: NetworkLimits) -> str:
    row = (await tx.execute(_WAITING, {"region": region, "vlans": list(limits.vlans)})).one()
    waiting, others = row.held - row.used, len(limits.vlans) - row.held
    return (
        f"none of the {len(limits.vlans)} VLANs of BERTH_NETWORK_VLANS is left in {region}: {row.used} are used, {waiting} were"
        f" left and are in quarantine or on a node whose inventory is older, and {others} are those of sites"
    )
