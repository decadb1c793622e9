"""Finding of `berth doctor` about machines that are out of service for what was found at their release."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_NAMED_MAX = 10
_NODES = """
select n.name, min(q.reason) from slot_quarantines q join nodes n on n.id = q.node_id
where q.source = 'release' and q.returned_at is null group by n.name order by n.name
"""


def release_finding(database_url: str) -> Finding:
    """Needs the schema. Names at most ten nodes, with the codes of what was found."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.execute(_NODES).fetchall()
    if not found:
        return Finding("released machines", "ok", "no node is in quarantine for what was found at a release")
    named = ", ".join(f"{name} ({reason.partition(':')[0]})" for name, reason in found[:_NAMED_MAX])
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return Finding(
        "released machines",
        "warning",
        f"in quarantine for what was found at a release: {named}{more}; `berth node quarantines NODE` has the evidence and the"
        " next step",
    )
