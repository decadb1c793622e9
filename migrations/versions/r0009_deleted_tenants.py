"""Deleted tenants: a tenant's row stays as a tombstone, with its state and the time of its deletion."""

from alembic import op

revision = "0009"
down_revision = "0008"

STATEMENTS = (
    "alter table tenants add column deleted_at timestamptz",
    "alter table tenants drop constraint tenants_state_check",
    "alter table tenants add constraint tenants_state_check check (state in ('active', 'suspended', 'deleted'))",
    "alter table tenants add constraint tenant_deleted_has_time check ((state = 'deleted') = (deleted_at is not null))",
    "comment on column tenants.deleted_at is 'When it was deleted; the row stays, so that its id and name are never used again.'",
)


def upgrade() -> None:
    """Allow the state `deleted`. Processes of the version before refuse such a tenant as they refuse a suspended one."""
    for statement in STATEMENTS:
        op.execute(statement)
