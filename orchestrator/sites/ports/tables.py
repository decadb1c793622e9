"""The tables of segments and of ports of machines. Revision 0060 explains them; a test keeps both equal."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

_NOW = text("clock_timestamp()")

site_segments = Table(
    "site_segments",
    METADATA,
    Column("site_id", Uuid, ForeignKey("sites.id"), primary_key=True),
    Column(
        "provisioning_vlan",
        Integer,
        CheckConstraint("provisioning_vlan between 1 and 4094", name="provisioning_vlan_is_valid"),
        nullable=False,
    ),
    Column("first_vlan", Integer, nullable=False),
    Column("last_vlan", Integer, nullable=False),
    Column(
        "quarantine_seconds",
        Integer,
        CheckConstraint("quarantine_seconds between 0 and 604800", name="segment_quarantine_is_bounded"),
        nullable=False,
    ),
    Column("changed_at", TIMESTAMPTZ, nullable=False, server_default=_NOW),
    Column("changed_by", Text, nullable=False),
    CheckConstraint("first_vlan >= 1 and first_vlan <= last_vlan and last_vlan <= 4094", name="tenant_vlans_are_valid"),
    CheckConstraint("provisioning_vlan not between first_vlan and last_vlan", name="provisioning_is_no_tenants"),
)

tenant_segments = Table(
    "tenant_segments",
    METADATA,
    Column("site_id", Uuid, ForeignKey("site_segments.site_id"), nullable=False),
    Column("vlan", Integer, CheckConstraint("vlan between 1 and 4094", name="tenant_vlan_is_valid"), nullable=False),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("leased_at", TIMESTAMPTZ, nullable=False, server_default=_NOW),
    Column("returned_at", TIMESTAMPTZ),
    Column("free_at", TIMESTAMPTZ),
    PrimaryKeyConstraint("site_id", "vlan", name="tenant_segment_once"),
    CheckConstraint("num_nulls(returned_at, free_at) in (0, 2)", name="tenant_segment_return_is_whole"),
    CheckConstraint("free_at >= returned_at", name="tenant_segment_is_free_later"),
    Index("tenant_segment_of_site", "site_id", "tenant_id", unique=True),
)

node_ports = Table(
    "node_ports",
    METADATA,
    Column("node_id", Uuid, ForeignKey("node_bmcs.node_id"), nullable=False),
    Column("site_id", Uuid, ForeignKey("site_segments.site_id"), nullable=False),
    Column(
        "switch",
        Text,
        CheckConstraint("switch ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'", name="switch_name"),
        nullable=False,
    ),
    Column(
        "port",
        Text,
        CheckConstraint("port ~ '^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}$'", name="switch_port_name"),
        nullable=False,
    ),
    Column(
        "mac", Text, CheckConstraint("mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'", name="switch_port_mac"), nullable=False
    ),
    Column("set_at", TIMESTAMPTZ, nullable=False, server_default=_NOW),
    Column("set_by", Text, nullable=False),
    PrimaryKeyConstraint("site_id", "switch", "port", name="switch_port_once"),
    UniqueConstraint("site_id", "mac", name="switch_port_of_mac"),
    Index("node_ports_by_node", "node_id"),
)

node_segments = Table(
    "node_segments",
    METADATA,
    Column("node_id", Uuid, ForeignKey("node_bmcs.node_id"), primary_key=True),
    Column("site_id", Uuid, ForeignKey("site_segments.site_id"), nullable=False),
    Column(
        "place",
        Text,
        CheckConstraint("place in ('provisioning', 'tenant', 'shut')", name="node_segment_place"),
        nullable=False,
    ),
    Column("vlan", Integer),
    Column("tenant_vlan", Integer),
    Column("task_id", Uuid),
    Column("changed_at", TIMESTAMPTZ, nullable=False, server_default=_NOW),
    Column("proven_at", TIMESTAMPTZ),
    Column("isolation", Text, CheckConstraint("isolation in ('none', 'vlan')", name="node_segment_isolation")),
    Column("found", JSONB, CheckConstraint("octet_length(found::text) <= 16384", name="node_segment_found_is_bounded")),
    ForeignKeyConstraint(["site_id", "tenant_vlan"], ["tenant_segments.site_id", "tenant_segments.vlan"]),
    CheckConstraint("place <> 'tenant' or vlan is not distinct from tenant_vlan", name="node_segment_is_leased"),
    CheckConstraint("num_nulls(proven_at, isolation) in (0, 2)", name="node_segment_proof_is_whole"),
    Index(
        "node_segments_by_tenant_vlan",
        "site_id",
        "tenant_vlan",
        postgresql_where=text("tenant_vlan is not null"),
    ),
)
