"""Claims that succeed another claim of the same allocation keep accepting its tasks (decision 0021)."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0008"
down_revision = "0007"

# The trigger runs whichever statement draws the fence, also those of processes of the version before.
_STATEMENTS = b"""
alter table claims add column inherited_fence bigint;
comment on column claims.inherited_fence is
    'Fence of the claim that this one succeeded: its tasks still count. Null: there is none, or a fence was drawn since.';
create trigger claim_fence_drawn before update of fence on claims for each row
    when (old.inherited_fence is not null and new.fence is distinct from old.fence)
    execute function drop_inherited_fence();
"""


def upgrade() -> None:
    """Add the column and the trigger that clears it."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["drop_inherited_fence"])
    connection.execute(_STATEMENTS)
