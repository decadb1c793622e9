"""Finding of `berth doctor` about maintenance windows: active ones that wait for allocations, and missed starts and ends."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

_NAMED_MAX = 10
_LATE_SECONDS_MAX = 60
# `waits_until` is null for ended windows, and planned units keep only open windows: both conditions have a partial index.
_WINDOWS = """
select (select count(*) from maintenance_windows where state in ('scheduled', 'active') and waits_until is not null) open,
  (select count(*) from maintenance_windows where waits_until < clock_timestamp() - make_interval(secs => %s)) late,
  array(
    select distinct n.name || ' (window ' || w.id || ')'
    from maintenance_units u
    join maintenance_windows w on w.id = u.window_id and w.state = 'active'
    join nodes n on n.id = u.node_id
    where not isempty(u.planned)
    order by 1
  ) held
"""


@dataclass(frozen=True)
class _Windows:
    """Open windows; those whose start or end is late; the nodes on which allocations hold units of an active one."""

    open: int
    late: int
    held: list[str]


def maintenance_finding(database_url: str) -> Finding:
    """Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = connection.cursor(row_factory=class_row(_Windows)).execute(_WINDOWS, (_LATE_SECONDS_MAX,)).fetchone()
    assert found is not None, "a select without a table has one row"
    if found.late:
        late = f"the start or end of {found.late} windows is a minute late; is `python -m worker` running?"
        return Finding("maintenance", "bad", late)
    if found.held:
        named = ", ".join(found.held[:_NAMED_MAX])
        more = f" and {len(found.held) - _NAMED_MAX} more" if len(found.held) > _NAMED_MAX else ""
        return Finding(
            "maintenance",
            "warning",
            f"allocations still hold units of active windows: {named}{more}; `berth maintenance show` names the slots,"
            " `berth force-release` ends an allocation",
        )
    return Finding("maintenance", "ok", f"{found.open} windows are scheduled or active, none waits for an allocation")
