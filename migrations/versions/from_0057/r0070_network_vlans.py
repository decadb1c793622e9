"""VLANs of tenant networks, for nodes that are connected by them."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0070"
down_revision = "0069"
LOCKS = ("nodes", "regions")

_STATEMENTS = b"""
create table network_vlans (
    region     text not null references regions (name),
    vlan       integer not null constraint network_vlan_is_valid check (vlan between 1 and 4094),
    network_id uuid not null constraint network_has_one_vlan unique,
    leased_at  timestamptz not null default clock_timestamp(),
    left_at    timestamptz,
    constraint network_vlan_once primary key (region, vlan)
);
comment on table network_vlans is 'VLANs that are leased to networks of a region, and those that were left, in quarantine.';
comment on column network_vlans.network_id is
    'No reference: the row outlives a network that is deleted, since a node that does not answer may still carry the VLAN.';
comment on column network_vlans.left_at is
    'When a guest left the network last; null: none has since one came last. Without a guest the quarantine began then.';
comment on column nodes.underlay is
    'Where the node receives VXLAN packets of tenant networks; with VLANs its address. By its last heartbeat.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before lease no VLANs."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
