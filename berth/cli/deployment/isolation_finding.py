"""Finding of `berth doctor` about machines in service that no switch is proven to separate from others."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_SUBJECT = "isolated machines"
_NAMED_MAX = 10
_OPEN = """
select n.name, g.site_id is not null as has_segments
from nodes n join node_bmcs b on b.node_id = n.id
left join site_segments g on g.site_id = b.site_id
left join node_segments s on s.node_id = n.id
where n.driver = 'redfish' and n.enrolled_at is null and n.state in ('active', 'draining')
  and not exists (select from deploy_runs r where r.node_id = n.id and r.ended_at is null)
  and (not exists (select from node_ports p where p.node_id = n.id)
       or s.node_id is not null and s.isolation is distinct from 'vlan')
order by n.name
"""
_OUTSIDE = """
select distinct n.name from allocations a join nodes n on n.id = a.node_id
left join node_segments s on s.node_id = n.id
where a.state = 'active' and n.driver = 'redfish' and n.enrolled_at is null
  and exists (select from node_ports p where p.node_id = n.id) and s.place is distinct from 'tenant'
  and not exists (select from deploy_runs r where r.node_id = n.id and r.ended_at is null)
order by n.name
"""


def isolation_finding(database_url: str) -> Finding:
    """Needs the schema. A warning where the site has segments; names at most ten nodes. Ports that a run will place first are not
    counted."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.execute(_OPEN).fetchall()
        outside = [name for (name,) in connection.execute(_OUTSIDE).fetchall()]
    if outside:
        detail = (
            f"rented and not in the segment of its tenant: {_named(outside)}; the tenant's `start` or `reboot` moves the ports,"
            " `berth node port show NODE` has them"
        )
        return Finding(_SUBJECT, "warning", detail)
    if not found:
        return Finding(_SUBJECT, "ok", "no machine in service is without a switch port that separates it")
    wanted = [name for name, has_segments in found if has_segments]
    if not wanted:
        return Finding(
            _SUBJECT, "ok", f"isolation none: {len(found)} machines in service are at sites without segments"
        )
    return Finding(
        _SUBJECT,
        "warning",
        f"isolation none, or not proven: {_named(wanted)}; `berth node port show NODE` has the ports and the newest task",
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"
