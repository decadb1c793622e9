"""SQL of VLANs: one is leased to a network with its first guest on a node that is connected by VLANs.

The network keeps it while it has guests, and for a quarantine afterwards. The caller holds the lock of the network's row.
VLANs of one region are leased under an advisory lock; a row of another network is never waited for.
"""

from __future__ import annotations

from uuid import UUID

from node_agent.wire.networks import VLAN_FEATURE
from orchestrator.database.transactions import Transaction
from orchestrator.networks.rules import NetworkFull, NetworkLimits

LOCK_POOL = "select pg_advisory_xact_lock(hashtext('networks'))"
"""Held by each transaction that leases a subnet or a VLAN, or takes VLANs for sites."""
# A network that uses its VLAN again is not left any more: a rival that waits for this row sees so (`_RECLAIM`).
_USE = "update network_vlans set left_at = null where network_id = :network_id returning vlan"
_LEASE = """
insert into network_vlans (region, vlan, network_id)
select :region, vlan, :network_id from unnest(cast(:vlans as int[])) vlan
where not exists (select from network_vlans v where v.region = :region and v.vlan = vlan.vlan)
  and not exists (select from site_segments s
                  where vlan.vlan = s.provisioning_vlan or vlan.vlan between s.first_vlan and s.last_vlan)
order by vlan.vlan limit 1
returning vlan
"""
# What a worker of the version before closed says nothing: its quarantine begins when it is found.
_MARK = """
with left_unsaid as (
    select v.region, v.vlan from network_vlans v
    where v.region = :region and v.left_at is null and v.network_id <> :network_id
      and not exists (select from network_addresses x where x.network_id = v.network_id)
    order by v.vlan for update skip locked
)
update network_vlans v set left_at = clock_timestamp() from left_unsaid u where (v.region, v.vlan) = (u.region, u.vlan)
"""
# A node that was not seen since may still carry the VLAN.
_RECLAIM = """
with idle as (
    select v.region, v.vlan from network_vlans v
    where v.region = :region and v.left_at < clock_timestamp() - make_interval(secs => cast(:quarantine as float8))
      and not exists (select from network_addresses x where x.network_id = v.network_id)
      and not exists (select from nodes n where n.region = :region and n.state <> 'retired' and :feature = any (n.agent_features)
                      and n.last_seen_at < v.left_at)
    order by v.vlan for update skip locked
)
delete from network_vlans v using idle i where (v.region, v.vlan) = (i.region, i.vlan)
  and not exists (select from network_addresses x where x.network_id = v.network_id)
"""
_AWAITED = """
select n.name from awaited_inventories w join nodes n on n.id = w.node_id
where n.region = :region and :feature = any (n.agent_features) order by n.name limit 1
"""
_WAITING = """
select count(*) as held,
       count(*) filter (where exists (select from network_addresses x where x.network_id = v.network_id)) as used
from network_vlans v where v.region = :region and v.vlan = any (cast(:vlans as int[]))
"""


async def use_vlan(tx: Transaction, network_id: UUID) -> int | None:
    """The VLAN of the locked network, which a guest joins; None if it has none."""
    found: int | None = (await tx.execute(_USE, {"network_id": network_id})).scalar()
    return found


async def lease_vlan(tx: Transaction, network_id: UUID, region: str, limits: NetworkLimits) -> int:
    """Lease a VLAN to the locked network, or return the one that it has. Raises `NetworkFull`."""
    found = await use_vlan(tx, network_id)
    if found is not None:
        return found
    if not limits.vlans:
        raise NetworkFull("no VLAN can be leased: BERTH_NETWORK_VLANS of the workers names none")
    await tx.execute(LOCK_POOL)
    of_region = {"region": region, "feature": VLAN_FEATURE}
    awaited = (await tx.execute(_AWAITED, of_region)).scalar()
    if awaited is not None:
        raise NetworkFull(
            f"no VLAN of {region} is known to be free: node {awaited} is awaited since the restore, and may carry any;"
            " wait for its inventory, or retire it"
        )
    wanted = {"region": region, "network_id": network_id, "vlans": list(limits.vlans)}
    leased: int | None = (await tx.execute(_LEASE, wanted)).scalar()
    if leased is None:
        await tx.execute(_MARK, {"region": region, "network_id": network_id})
        await tx.execute(_RECLAIM, {**of_region, "quarantine": limits.vlan_quarantine_seconds})
        leased = (await tx.execute(_LEASE, wanted)).scalar()
    if leased is None:
        raise NetworkFull(await _why_full(tx, region, limits))
    return leased


async def _why_full(tx: Transaction, region: str, limits: NetworkLimits) -> str:
    row = (await tx.execute(_WAITING, {"region": region, "vlans": list(limits.vlans)})).one()
    waiting, others = row.held - row.used, len(limits.vlans) - row.held
    return (
        f"none of the {len(limits.vlans)} VLANs of BERTH_NETWORK_VLANS is left in {region}: {row.used} are used, {waiting} were"
        f" left and are in quarantine or on a node that was not seen since, and {others} are those of sites"
    )
