"""Roles of API keys."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0012"
down_revision = "0011"

# A process of the earlier code reads `role` alone, and 'admin' there means an operator. So the roles are a second column, whose
# default is for keys that such a process inserts.
_STATEMENTS = b"""
alter table api_keys add column access_role text not null default 'admin',
    add constraint api_key_access_role_fits check (
        case role when 'tenant' then access_role in ('viewer', 'member', 'admin', 'billing')
        else access_role in ('viewer', 'support', 'fleet', 'finance', 'admin') end);
comment on column api_keys.role is 'Kind of the principal: tenant, or admin for operators.';
comment on column api_keys.access_role is 'What the key may do: the role that routes require.';
"""


def upgrade() -> None:
    """Give every key that exists the role admin, of its tenant or of the operators."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
