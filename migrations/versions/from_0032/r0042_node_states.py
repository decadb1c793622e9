"""States of nodes: the legal transitions, and what reads of the shown state need."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0042"
down_revision = "0040"

_STATEMENTS = b"""
create index enrolment_tokens_open on enrolment_tokens (node_id) where used_at is null;
comment on index enrolment_tokens_open is 'Whether a registered node is being enrolled.';
create trigger node_transitions before update of state on nodes
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_node_state();
comment on trigger node_transitions on nodes is 'The stored states; what is shown beside them is derived.';
"""


def upgrade() -> None:
    """Add the trigger and the index. Processes of the version before make the same transitions."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["refuse_illegal_node_state"])
    connection.execute(_STATEMENTS)
