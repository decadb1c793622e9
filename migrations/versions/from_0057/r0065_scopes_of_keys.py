"""API keys carry scopes."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0065"
down_revision = "0064"
LOCKS = ("api_keys",)

_STATEMENTS = b"""
alter table api_keys add column scopes text[] constraint api_key_scopes_are_known check (
    cardinality(scopes) between 1 and 64 and array_position(scopes, null) is null
    and array_to_string(scopes, ' ') ~ '^[a-z][a-z-]{0,39}:(read|write)( [a-z][a-z-]{0,39}:(read|write))*$');
comment on column api_keys.scopes is 'What the key may do within its role, as noun:read or noun:write; null: everything.';
"""


def upgrade() -> None:
    """Add the column. A process of the version before does not know it, and lets a key with scopes do all of its role."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
