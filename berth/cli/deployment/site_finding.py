"""Finding of `berth doctor` about sites with BMCs that no agent reaches now."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_NAMED_MAX = 10
_SITES = """
select s.name, b.machines, coalesce(s.lease_until > clock_timestamp(), false)
from sites s cross join lateral (select count(*) as machines from node_bmcs where site_id = s.id) b
where b.machines > 0 order by s.name
"""


def site_finding(database_url: str) -> Finding:
    """Needs the schema. Names at most ten sites by name; a site without a BMC needs no agent."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.execute(_SITES).fetchall()
    left = [(name, machines) for name, machines, is_held in found if not is_held]
    if not left:
        return Finding("sites", "ok", f"an agent holds the lease of each of the {len(found)} sites that have BMCs")
    named = ", ".join(f"{name} ({machines} BMCs)" for name, machines in left[:_NAMED_MAX])
    more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
    return Finding(
        "sites",
        "warning",
        f"no agent holds the lease of {named}{more}: requests for their BMCs fail after 10 minutes; is"
        " `python -m node_agent --site` running there?",
    )
