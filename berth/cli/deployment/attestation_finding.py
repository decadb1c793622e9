"""Finding of `berth doctor` about nodes whose last attestation on demand failed."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_NAMED_MAX = 10
_NODES = """
select n.name, a.code from nodes n cross join lateral (
    select verdict, code from node_attestations a where a.node_id = n.id and a.ended_at is not null order by a.id desc limit 1
) a
where a.verdict = 'failed' and n.state <> 'retired' order by n.name
"""


def attestation_finding(database_url: str) -> Finding:
    """Needs the schema. Names at most ten nodes, with the code of each."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.execute(_NODES).fetchall()
    if not found:
        return Finding("attested nodes", "ok", "no node's last attestation on demand failed")
    named = ", ".join(f"{name} ({code})" for name, code in found[:_NAMED_MAX])
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return Finding(
        "attested nodes",
        "warning",
        f"the last attestation failed: {named}{more}; `berth node attestation NODE` has the detail",
    )
