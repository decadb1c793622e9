"""What a request may see of rivals' reservations (decision 0025), and whether the nodes of a pool prove their TPMs."""

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
create table pool_attestations (
    pool_id integer primary key references pools (id),
    policy  text not null constraint pool_attestation_policy check (policy in ('off', 'offered', 'required'))
);
comment on table pool_attestations is 'Whether the nodes of a pool prove their TPMs; without a row: offered.';
alter table node_tpms add column policy_is_set boolean not null default false;
comment on column node_tpms.policy_is_set is
    'An operator chose the policy for this node; false with the policy offered: the node has that of its pool.';
"""


def upgrade() -> None:
    """Add a view, a table and a column. Processes of the version before use none of them, and ignore the policies of pools."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
