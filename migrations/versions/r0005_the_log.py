"""The log for its readers: each part is one file, `0005_<part>.sql`, with its way back in `0005_<part>.down.sql`."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"

SQL = Path(__file__).parent.parent / "sql"
PARTS: tuple[str, ...] = ("log_first", "transactions", "committed_operations", "billing", "history", "retention")


def upgrade() -> None:
    """Make every part, in order."""
    # Straight to the driver: the files hold several statements each, and percent signs that are nobody's parameters.
    cursor = op.get_bind().connection.cursor()
    for part in PARTS:
        cursor.execute((SQL / f"0005_{part}.sql").read_text())


def downgrade() -> None:
    """Remove every part, the last one first, what it holds included."""
    cursor = op.get_bind().connection.cursor()
    for part in reversed(PARTS):
        cursor.execute((SQL / f"0005_{part}.down.sql").read_text())
