"""Names of guests in the networks of their tenants."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0068"
down_revision = "0067"
LOCKS = ("network_addresses",)

_STATEMENTS = b"""
alter table network_addresses
    add column name text constraint network_name_is_a_label check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    add constraint network_name_once unique (network_id, name);
comment on column network_addresses.name is
    'What DNS knows the guest as in its network, besides its host name: of the name that the allocation had, if it was free.';
"""


def upgrade() -> None:
    """Add the column. Processes of the version before lease no names."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
