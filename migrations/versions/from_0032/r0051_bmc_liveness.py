"""Whether BMCs answer: the liveness of nodes without an agent."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0051"
down_revision = "0050"
LOCKS = ("node_bmcs", "nodes")

_STATEMENTS = b"""
alter table node_bmcs
    add column answered_at timestamptz,
    add column silent_because text constraint bmc_silence_is_bounded check (char_length(silent_because) <= 64);
alter table node_bmcs set (fillfactor = 70);
create index nodes_without_agent on nodes (id) where driver = 'redfish' and enrolled_at is null;
comment on index nodes_without_agent is 'Nodes whose BMC says whether they are online.';
comment on column node_bmcs.answered_at is 'When the BMC answered last. A node without an agent is online by it.';
comment on column node_bmcs.silent_because is 'Why it did not answer last; null: it did, or was not asked.';
"""


def upgrade() -> None:
    """Add both columns, which processes of the version before neither read nor write."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
