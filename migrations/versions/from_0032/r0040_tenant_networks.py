"""Networks of tenants, the addresses of guests in them, and the ports of nodes that lead to guests."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0040"
down_revision = "0039"

_STATEMENTS = b"""
create sequence network_vnis as integer maxvalue 16777215;
comment on sequence network_vnis is 'VNIs are drawn once: what still runs of a deleted tenant shares a network with no other.';
create table networks (
    id         uuid primary key default uuidv7(),
    tenant_id  uuid not null references tenants (id),
    region     text not null references regions (name),
    vni        integer not null constraint network_vni_is_valid check (vni between 1 and 16777215),
    subnet     cidr not null constraint network_subnet_is_ipv4 check (family(subnet) = 4 and masklen(subnet) between 8 and 29),
    created_at timestamptz not null default clock_timestamp(),
    constraint network_of_tenant unique (tenant_id, region),
    constraint network_vni_once unique (vni),
    constraint network_subnets_apart exclude using gist (subnet inet_ops with &&)
);
comment on table networks is 'One network for each tenant and region, made with its first guest and deleted with the tenant.';
comment on column networks.vni is 'Names the network on nodes, also in VXLAN (RFC 7348).';
comment on column networks.subnet is 'No two networks overlap: a node routes to each.';
create table network_addresses (
    allocation_id uuid primary key references allocations (id) on delete cascade,
    network_id    uuid not null references networks (id) on delete cascade,
    address       inet not null
                  constraint network_address_is_a_host check (family(address) = 4 and masklen(address) = 32),
    leased_at     timestamptz not null default clock_timestamp(),
    constraint network_address_once unique (network_id, address)
);
comment on table network_addresses is 'Leased when the first provision task is written, until the claim is closed; at the latest
until the allocation or the tenant is deleted.';
create table published_ports (
    node_id       uuid not null references nodes (id),
    port          integer not null constraint published_port_is_valid check (port between 1 and 65535),
    allocation_id uuid not null references network_addresses (allocation_id) on delete cascade,
    guest_port    integer not null constraint published_guest_port_is_valid check (guest_port between 1 and 65535),
    constraint published_port_once primary key (node_id, port),
    constraint guest_port_once unique (allocation_id, guest_port)
);
comment on table published_ports is 'TCP ports of a node that lead to a port of a guest; they end with its address.';
"""


def upgrade() -> None:
    """Add the tables. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
