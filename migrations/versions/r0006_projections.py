"""What is told of the log, and confirms in few statements: each part is `0006_<part>.sql`, its way back beside it."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"

SQL = Path(__file__).parent.parent / "sql"
PARTS: tuple[str, ...] = ("confirming", "prepaid", "notifications", "webhooks")


def upgrade() -> None:
    """Make every part, in order."""
    # Straight to the driver: the files hold several statements each, and percent signs that are nobody's parameters.
    cursor = op.get_bind().connection.cursor()
    for part in PARTS:
        cursor.execute((SQL / f"0006_{part}.sql").read_text())


def downgrade() -> None:
    """Remove every part, the last one first, what it holds included."""
    cursor = op.get_bind().connection.cursor()
    for part in reversed(PARTS):
        cursor.execute((SQL / f"0006_{part}.down.sql").read_text())
