"""The first schema: catalogue, fleet, claims, allocations, tasks, log, placement."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

SQL = Path(__file__).parent.parent / "sql"
PARTS = ("catalogue", "fleet", "claims", "allocations", "tasks", "log", "placement")

TABLES = (
    "outbox", "log", "log_head", "log_tenants", "consumer_positions", "node_tasks", "audit", "operations",
    "allocation_timeline", "allocations", "claims", "node_certificates", "enrolment_tokens", "slots", "nodes", "pools",
    "sku_prices", "skus", "images", "regions", "ssh_keys", "api_keys", "tenant_quotas", "tenants",
)  # fmt: skip
FUNCTIONS = (
    "log_advance(integer)",
    "log_extend(bigint)",
    "postgres_leader_id()",
    "refuse_illegal_transition()",
    "refuse_initial_state()",
    "place_allocations(jsonb, boolean)",
    "place_together(jsonb, boolean)",
    "refresh_node_fit(uuid)",
    "lowest_bits(bigint, integer)",
    "mask_to_units(bigint, bigint)",
)


def upgrade() -> None:
    """Make everything."""
    # Straight to the driver: the files hold several statements each, and percent signs that are nobody's parameters.
    cursor = op.get_bind().connection.cursor()
    for part in PARTS:
        cursor.execute((SQL / f"0001_{part}.sql").read_text())


def downgrade() -> None:
    """Remove everything, data included."""
    connection = op.get_bind()
    connection.exec_driver_sql("drop function creation_body(allocations)")
    for table in TABLES:
        connection.exec_driver_sql(f"drop table {table}")
    for function in FUNCTIONS:
        connection.exec_driver_sql(f"drop function {function}")
    connection.exec_driver_sql("drop sequence fences, unit_numbers")
