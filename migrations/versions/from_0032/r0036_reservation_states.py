"""What a tenant's request may see of rivals' reservations, once a policy hides the rows (decision 0025)."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0036"
down_revision = "0035"

_STATEMENTS = b"""
create view reservation_states (id, position, state, expires_at) as
select r.id, r.position, r.state, r.expires_at from reservations r where r.state in ('hold', 'confirmed');
comment on view reservation_states is
    'State and deadline of each live reservation of any tenant. It runs as its owner: the policy of reservations does not apply.';
comment on column reservation_states.expires_at is 'Deadline while it is a hold.';
"""


def upgrade() -> None:
    """Add the view. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
