"""The whole schema: each noun is one file in `migrations/schema`, applied in this order."""

from pathlib import Path

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0007"
down_revision = None

SCHEMA = Path(__file__).parent.parent / "schema"
PARTS = (
    "database", "tenants", "catalogue", "nodes", "placement", "allocations", "reservations", "tasks", "operations",
    "audit", "log", "keyvalue", "billing", "webhooks", "notifications", "log_cursors",
)  # fmt: skip
# Functions that a trigger or an insert of these files calls, created first; the loader applies all others afterwards.
CALLED = (
    "count_operations", "count_reservations", "count_resources", "forget_live_rows", "keep_price", "log_extend",
    "look_at_opened", "open_balance", "bump_node_version", "postgres_leader_id", "refuse_change",
    "refuse_illegal_reservation", "refuse_illegal_transition", "refuse_initial_reservation", "refuse_initial_state",
    "refuse_reopening", "settle_lines",
)  # fmt: skip


def upgrade() -> None:
    """Create everything in an empty database."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, CALLED)
    for part in PARTS:
        connection.execute((SCHEMA / f"{part}.sql").read_bytes())
