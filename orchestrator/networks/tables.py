"""The tables of tenant networks.

Created by r0040_tenant_networks.py and r0041_spanned_networks.py of migrations/versions/from_0032, and r0068_names_of_guests.py
and r0070_network_vlans.py of from_0057, which explain columns; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    PrimaryKeyConstraint,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import CIDR, INET, ExcludeConstraint

from node_agent.wire.networks import VNI_MAX
from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

network_vnis = Sequence("network_vnis", data_type=Integer, maxvalue=VNI_MAX, cache=1, metadata=METADATA)

networks = Table(
    "networks",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("region", Text, ForeignKey("regions.name"), nullable=False),
    Column("vni", Integer, nullable=False),
    Column("subnet", CIDR, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("members_version", BigInteger, nullable=False, server_default=text("1")),
    CheckConstraint("vni between 1 and 16777215", name="network_vni_is_valid"),
    CheckConstraint("family(subnet) = 4 and masklen(subnet) between 8 and 29", name="network_subnet_is_ipv4"),
    UniqueConstraint("tenant_id", "region", name="network_of_tenant"),
    UniqueConstraint("vni", name="network_vni_once"),
    ExcludeConstraint(("subnet", "&&"), using="gist", name="network_subnets_apart", ops={"subnet": "inet_ops"}),
)

network_addresses = Table(
    "network_addresses",
    METADATA,
    Column("allocation_id", Uuid, ForeignKey("allocations.id", ondelete="CASCADE"), primary_key=True),
    Column("network_id", Uuid, ForeignKey("networks.id", ondelete="CASCADE"), nullable=False),
    Column("address", INET, nullable=False),
    Column("leased_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("name", Text),
    CheckConstraint("name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'", name="network_name_is_a_label"),
    CheckConstraint("family(address) = 4 and masklen(address) = 32", name="network_address_is_a_host"),
    UniqueConstraint("network_id", "address", name="network_address_once"),
    UniqueConstraint("network_id", "name", name="network_name_once"),
)

network_vlans = Table(
    "network_vlans",
    METADATA,
    Column("region", Text, ForeignKey("regions.name"), nullable=False),
    Column("vlan", Integer, nullable=False),
    Column("network_id", Uuid, nullable=False),
    Column("leased_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("left_at", TIMESTAMPTZ),
    CheckConstraint("vlan between 1 and 4094", name="network_vlan_is_valid"),
    PrimaryKeyConstraint("region", "vlan", name="network_vlan_once"),
    UniqueConstraint("network_id", name="network_has_one_vlan"),
)

published_ports = Table(
    "published_ports",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("port", Integer, nullable=False),
    Column("allocation_id", Uuid, ForeignKey("network_addresses.allocation_id", ondelete="CASCADE"), nullable=False),
    Column("guest_port", Integer, nullable=False),
    CheckConstraint("port between 1 and 65535", name="published_port_is_valid"),
    CheckConstraint("guest_port between 1 and 65535", name="published_guest_port_is_valid"),
    PrimaryKeyConstraint("node_id", "port", name="published_port_once"),
    UniqueConstraint("allocation_id", "guest_port", name="guest_port_once"),
)
