"""Finding of `berth doctor` about deliveries that are left to the archive: without further runs their table grows."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

SUBJECT = "archive of deliveries"
DAYS_MAX = 3
"""After so many days without a run the finding is a warning."""
_NEWEST = """
select extract(epoch from clock_timestamp() - last_run)::float8 / 86400 from archive_uses where kind = 'webhook_deliveries'
"""


def archive_finding(database_url: str) -> Finding:
    """Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        newest = connection.execute(_NEWEST).fetchone()
    if newest is None:
        return Finding(SUBJECT, "skipped", "the webhook sender deletes ended deliveries; no archive contains them")
    days = float(newest[0])
    if days > DAYS_MAX:
        return Finding(
            SUBJECT,
            "warning",
            f"the newest `berth archive run` of deliveries was {days:.0f} days ago, and nothing else deletes them; run it, or"
            " return them to the webhook sender with `--delivery-days 0`",
        )
    return Finding(SUBJECT, "ok", f"the newest run was {days:.1f} days ago")
