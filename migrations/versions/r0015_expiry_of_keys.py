"""Expiry and owners of API keys."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0015"
down_revision = "0014"

_STATEMENTS = b"""
alter table api_keys add column expires_at timestamptz,
    add column owner text constraint api_keys_owner_check check (length(owner) between 1 and 100);
comment on column api_keys.expires_at is 'The key is refused from this instant on; null: it does not expire.';
comment on column api_keys.owner is 'The person or service account that uses the key, as its creator named it; null: not named.';
"""


def upgrade() -> None:
    """Add both columns; the keys that exist do not expire. Processes of the version before ignore `expires_at`."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
