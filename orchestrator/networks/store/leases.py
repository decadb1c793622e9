"""SQL of tenant networks: an address, a name and a port are leased with the first provision task and end with the claim.

The caller holds the locks of the allocation and of its node (`lock_allocation`), so ports of one node are leased one after
another. Addresses of one network are leased under the lock of its row, and new networks under an advisory lock.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from node_agent.wire.networks import SSH_PORT, VNI_MAX, NetworkOrder, PublishedPort, host_name
from orchestrator.allocations.subject import Subject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.networks.rules import GATEWAY_HOST, NetworkFull, NetworkLimits, gateway_of, label_of, mac_of
from orchestrator.networks.store.vlans import LOCK_POOL, begin_lease, lease_vlan, use_vlan

_FIND = """
select w.id, w.vni, w.subnet, host(x.address) as address, x.name,
       (select v.vlan from network_vlans v where v.network_id = w.id) as vlan,
       (select array_agg(array[p.port, p.guest_port] order by p.port) from published_ports p
        where p.allocation_id = x.allocation_id) as published
from network_addresses x join networks w on w.id = x.network_id where x.allocation_id = :allocation_id
"""
_LOCK_NETWORK = """
select id, vni, subnet from networks where tenant_id = :tenant_id and region = :region for no key update
"""
# Subnets of an earlier pool or prefix length stay, so each candidate is compared with all.
_MAKE_NETWORK = """
insert into networks (tenant_id, region, vni, subnet)
select :tenant_id, :region, nextval('network_vnis'), free.subnet
from (select candidate.subnet
      from generate_series(0, cast(:subnets as bigint) - 1) place,
           lateral (select set_masklen(cast(:base as inet) + (place << (32 - :prefix_length)), :prefix_length)::cidr as subnet)
                   candidate
      where not exists (select from networks n where n.subnet && candidate.subnet)
      order by place limit 1) free
where (select last_value from network_vnis) < :vni_max
on conflict (tenant_id, region) do nothing
"""
_LEASE_ADDRESS = """
with leased as (
    insert into network_addresses (allocation_id, network_id, address, name)
    select :allocation_id, :network_id, cast(:base as inet) + place,
           case when not exists (select from network_addresses x where x.network_id = :network_id and x.name = :name)
                then cast(:name as text) end
    from generate_series(cast(:first as bigint), cast(:last as bigint)) place
    where not exists (select from network_addresses x
                      where x.network_id = :network_id and x.address = cast(:base as inet) + place)
    order by place limit 1
    returning host(address) as address, name
), changed as (
    update networks set members_version = members_version + 1 where id = :network_id and exists (select from leased)
)
select address, name from leased
"""
# Any free port: the one that was freed last may still be in the configuration of its last tenant.
_LEASE_PORT = """
insert into published_ports (node_id, port, allocation_id, guest_port)
select :node_id, port, :allocation_id, :guest_port from generate_series(cast(:first as int), cast(:last as int)) port
where not exists (select from published_ports p where p.node_id = :node_id and p.port = port.port)
order by random() limit 1
returning port
"""


async def find_network(reading: Reading, allocation_id: UUID) -> NetworkOrder | None:
    """What is leased to the allocation, as its node needs it; None if nothing is."""
    row = (await reading.execute(_FIND, {"allocation_id": allocation_id})).first()
    if row is None:
        return None
    order = _order(row.id, row.vni, IPv4Network(str(row.subnet)), IPv4Address(row.address), row.published)
    return _named(order, allocation_id, row.name, row.vlan)


async def lease_network(
    tx: Transaction, subject: Subject, limits: NetworkLimits, name: str | None = None, *, by_vlan: bool = False
) -> NetworkOrder:
    """Lease an address in the tenant's network and a port of the node, or return what is leased already.

    `name`: of the allocation. It is leased with the address if it is a label that no guest of the network has. `by_vlan`: the
    node is connected by VLANs, so the network gets one if it has none. Raises `NetworkFull`; what was written before stays with
    the caller's transaction.
    """
    found = await find_network(tx, subject.id)
    if found is not None:
        return await _with_vlan(tx, subject, limits, found) if by_vlan and found.vlan is None else found
    clean = await begin_lease(tx, subject.tenant_id, subject.region) if by_vlan else None
    network = await _lock_network(tx, subject, limits)
    vlan = await (lease_vlan(tx, network.id, subject.region, limits, clean) if by_vlan else use_vlan(tx, network.id))
    subnet = IPv4Network(str(network.subnet))
    leased = (
        await tx.execute(
            _LEASE_ADDRESS,
            {
                "allocation_id": subject.id, "network_id": network.id, "base": str(subnet.network_address),
                "first": GATEWAY_HOST + 1, "last": subnet.num_addresses - 2, "name": label_of(name),
            },
        )
    ).one_or_none()  # fmt: skip
    if leased is None:
        raise NetworkFull(
            f"the network of tenant {subject.tenant_id} in {subject.region} has no free address in {subnet}"
        )
    port = (
        await tx.execute(
            _LEASE_PORT,
            {
                "node_id": subject.node_id, "allocation_id": subject.id, "guest_port": SSH_PORT,
                "first": limits.port_first, "last": limits.port_last,
            },
        )
    ).scalar_one_or_none()  # fmt: skip
    if port is None:
        raise NetworkFull(f"the node has no free port from {limits.port_first} to {limits.port_last}")
    order = _order(network.id, network.vni, subnet, IPv4Address(leased.address), [[port, SSH_PORT]])
    return _named(order, subject.id, leased.name, vlan)


async def _with_vlan(tx: Transaction, subject: Subject, limits: NetworkLimits, order: NetworkOrder) -> NetworkOrder:
    """The order of a guest whose node is connected by VLANs only since its first attempt."""
    clean = await begin_lease(tx, subject.tenant_id, subject.region)
    await _lock_network(tx, subject, limits)
    return order.model_copy(update={"vlan": await lease_vlan(tx, order.network_id, subject.region, limits, clean)})


async def _lock_network(tx: Transaction, subject: Subject, limits: NetworkLimits) -> Row[Any]:
    wanted = {"tenant_id": subject.tenant_id, "region": subject.region}
    row = (await tx.execute(_LOCK_NETWORK, wanted)).first()
    if row is not None:
        return row
    await tx.execute(LOCK_POOL)
    pool = {
        "base": str(limits.pool.network_address), "prefix_length": limits.prefix_length, "subnets": limits.subnets,
        "vni_max": VNI_MAX,
    }  # fmt: skip
    await tx.execute(_MAKE_NETWORK, {**wanted, **pool})
    row = (await tx.execute(_LOCK_NETWORK, wanted)).first()
    if row is None:
        raise NetworkFull(f"the pool {limits.pool} has no free subnet of /{limits.prefix_length}")
    return row


def names_of(allocation_id: UUID, name: str | None) -> list[str]:
    """The names of a guest in its network: its host name, and the one that is leased to it."""
    return [host_name(allocation_id), *([] if name is None else [name])]


def _named(order: NetworkOrder, allocation_id: UUID, name: str | None, vlan: int | None) -> NetworkOrder:
    return order.model_copy(update={"names": names_of(allocation_id, name), "vlan": vlan})


def _order(
    network_id: UUID, vni: int, subnet: IPv4Network, address: IPv4Address, published: list[list[int]]
) -> NetworkOrder:
    return NetworkOrder(
        network_id=network_id,
        vni=vni,
        subnet=subnet,
        gateway=gateway_of(subnet),
        address=address,
        mac=mac_of(address),
        published=[PublishedPort(port=port, guest_port=guest_port) for port, guest_port in published],
    )
