"""Which guests the networks of a node have on other nodes: part of the answer to each heartbeat of a node that connects them.

Most heartbeats find nothing changed: an etag of the versions of the node's networks saves the list of their guests.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from uuid import UUID

import structlog

from node_agent.wire.networks import SPANNED_GUESTS_MAX, VLAN_FEATURE, RemoteGuest, SpanAnswer, SpannedNetwork
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.networks.rules import mac_of
from orchestrator.networks.store.leases import names_of

log = structlog.get_logger("orchestrator.networks")

_HERE = "select * from networks_on_node(:node_id)"
# No guest on a node whose identity is in conflict: either machine may be the wrong one.
_ELSEWHERE = """
select distinct w.id, w.vni, x.address as sorted, host(x.address) as address, host(n.underlay) as underlay,
       x.allocation_id, x.name
from networks w
left join (
    network_addresses x
    join published_ports p on p.allocation_id = x.allocation_id and p.node_id <> :node_id
    join nodes n on n.id = p.node_id and n.underlay is not null and n.identity_conflict_at is null and n.state <> 'retired'
        and (:vlan = any (n.agent_features)) = (select :vlan = any (o.agent_features) from nodes o where o.id = :node_id)
) on x.network_id = w.id and n.underlay <> cast(:underlay as inet)
where w.id = any (:networks)
order by w.vni, sorted limit :rows_max
"""
_DIVIDED = """
select count(distinct w.id) from networks w join network_addresses x on x.network_id = w.id
join published_ports p on p.allocation_id = x.allocation_id
join nodes n on n.id = p.node_id and n.underlay is not null and n.state <> 'retired' and n.identity_conflict_at is null
    and (:vlan = any (n.agent_features)) <> (select :vlan = any (o.agent_features) from nodes o where o.id = :node_id)
where w.id = any (:networks)
"""
# In the order of ids: two nodes of the same networks may move at once.
_NODE_MOVED = """
with locked as (
    select w.id from networks w
    where w.id in (select x.network_id from published_ports p join network_addresses x on x.allocation_id = p.allocation_id
                   where p.node_id = :node_id)
    order by w.id for no key update
)
update networks w set members_version = w.members_version + 1 from locked where w.id = locked.id
"""


async def find_guests_elsewhere(
    reading: Reading, node_id: UUID, etag: str | None, *, guests_max: int = SPANNED_GUESTS_MAX
) -> SpanAnswer:
    """The networks that have guests on the node, each with its guests on other nodes that connect theirs in the same way.

    Guests on nodes that connect theirs in another way, by VXLAN and not by VLANs or the reverse, are not reached; that is logged.
    None of them if they are those of this `etag`; empty for a node without an underlay address. If they are more than
    `guests_max`, which is logged, None: the node keeps what it has. A network without guests elsewhere counts as one.
    """
    here = (await reading.execute(_HERE, {"node_id": node_id})).one()
    if here.etag == etag:
        return SpanAnswer(etag=here.etag, networks=None)
    there = {"node_id": node_id, "networks": here.networks, "vlan": VLAN_FEATURE}
    rows = (await reading.execute(_ELSEWHERE, {**there, "underlay": here.underlay, "rows_max": guests_max + 1})).all()
    if len(rows) > guests_max:
        log.error("networks_too_large", node_id=str(node_id), guests_max=guests_max)
        return SpanAnswer(etag=here.etag, networks=None)
    divided = (await reading.execute(_DIVIDED, there)).scalar_one()
    if divided:
        log.warning("networks_divided", node_id=str(node_id), networks=divided)
    networks: dict[UUID, SpannedNetwork] = {}
    for row in rows:
        network = networks.setdefault(row.id, SpannedNetwork(network_id=row.id, vni=row.vni, guests=[]))
        if row.address is not None:
            address = IPv4Address(row.address)
            underlay, names = IPv4Address(row.underlay), names_of(row.allocation_id, row.name)
            network.guests.append(RemoteGuest(address=address, mac=mac_of(address), underlay=underlay, names=names))
    return SpanAnswer(etag=here.etag, networks=list(networks.values()))


async def note_node_moved(tx: Transaction, node_id: UUID) -> None:
    """Other nodes learn that this one has another underlay address. The caller holds the lock of the node."""
    await tx.execute(_NODE_MOVED, {"node_id": node_id})
