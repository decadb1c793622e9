"""Wipe statements of deploy systems: what each has signed about the wipe that released an allocation."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0069"
down_revision = "0068"
LOCKS = ("deploy_systems",)

_STATEMENTS = b"""
alter table deploy_systems
    add column wipe_statement jsonb
        constraint deploy_statement_is_bounded check (octet_length(wipe_statement::text) <= 69632);
comment on column deploy_systems.wipe_statement is
    'StatementEnvelope (node_agent/wiping/statement.py) of the wipe that released an allocation.';
"""


def upgrade() -> None:
    """Add the column. Processes of the version before store no statements."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
