"""User data and SSH keys are removed once the cleanup of an allocation is proven: also of those that ended before."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0015"
down_revision = "0011"

_STATEMENTS = b"""
select remove_login_data(a.id) from allocations a join claims c on c.id = a.claim_id
where a.state in ('released', 'failed') and c.closed_at is not null
  and (a.user_data is not null or cardinality(a.ssh_public_keys) > 0);
update reservations set template = template - 'user_data' where ended_at is not null and template ? 'user_data';
comment on column allocations.user_data is 'Null also once cleanup is proven.';
comment on column allocations.ssh_public_keys is 'Empty once cleanup is proven.';
comment on column node_tasks.envelope is 'The signed task, byte for byte as the node verifies it. After proof of cleanup without '
    'user data and SSH keys.';
"""


def upgrade() -> None:
    """Create the function and remove what is left of ended allocations and reservations."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["remove_login_data"])
    connection.execute(_STATEMENTS)
