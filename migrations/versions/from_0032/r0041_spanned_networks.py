"""Where other nodes reach the tenant networks of a node, and a version of each network's members."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0041"
down_revision = "0040"

_STATEMENTS = b"""
alter table nodes add column underlay inet
    constraint node_underlay_is_a_host check (family(underlay) = 4 and masklen(underlay) = 32);
comment on column nodes.underlay is 'Where the node receives VXLAN packets of tenant networks, by its last heartbeat.';
alter table networks add column members_version bigint not null default 1;
comment on column networks.members_version is 'Grows whenever a guest or a node of the network comes, goes or moves.';
"""


def upgrade() -> None:
    """Add the columns. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
