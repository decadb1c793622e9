"""Finding of `berth doctor` about serial numbers of GPUs and disks that several nodes report."""

from __future__ import annotations

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_NAMED_MAX = 10
# The condition is that of the partial index `hardware_contested`.
_CONTESTED = """
select p.kind || ' ' || p.serial || ' on ' || string_agg(n.name, ', ' order by n.name), count(*) over ()
from hardware_places p join nodes n on n.id = p.node_id
where p.contested_since is not null group by p.serial, p.kind order by min(p.contested_since), p.serial limit %s
"""


def hardware_finding(database_url: str) -> Finding:
    """Needs the schema. Names at most ten serial numbers, the longest contested first."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.execute(_CONTESTED, (_NAMED_MAX,)).fetchall()
    if not found:
        return Finding("hardware", "ok", "no serial number of a GPU or disk is reported by several nodes")
    number = int(found[0][1])
    named = "; ".join(str(place) for place, _ in found)
    more = f" and {number - len(found)} more" if number > len(found) else ""
    return Finding(
        "hardware",
        "warning",
        f"{number} serial numbers are reported by several nodes: {named}{more}; the history of each is doubtful until one node"
        " reports it: `berth hardware history SERIAL`",
    )
