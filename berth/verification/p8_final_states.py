"""P8: final states are final. Every allocation's timeline is a legal path (DESIGN §4) that ends where the row is."""

from __future__ import annotations

from berth.verification.verdict import Connection, Verdict

STEPS = """
with steps as (
    select allocation_id, from_state, to_state,
           lag(to_state) over (partition by allocation_id order by row_version) as before
    from allocation_timeline where kind = 'transition'
)
select allocation_id, coalesce(before, 'nothing'), coalesce(from_state, 'nothing'), to_state from steps
where from_state is distinct from before
   or case when before is null then to_state <> 'requested'
           else (before, to_state) not in (
                ('requested', 'provisioning'), ('requested', 'failed'), ('requested', 'releasing'),
                ('provisioning', 'active'), ('provisioning', 'failed'), ('provisioning', 'releasing'),
                ('active', 'releasing'),
                ('releasing', 'released'), ('releasing', 'release_failed'),
                ('release_failed', 'releasing')) end
"""
ENDS = """
with newest as (
    select distinct on (allocation_id) allocation_id, to_state, row_version from allocation_timeline
    where kind = 'transition' order by allocation_id, row_version desc
)
select a.id, a.state, coalesce(n.to_state, 'nothing') from allocations a left join newest n on n.allocation_id = a.id
where n.to_state is distinct from a.state or n.row_version > a.row_version
"""
TIMES = """
select id, state from allocations
where active_at < requested_at or releasing_at < coalesce(active_at, requested_at)
   or released_at < releasing_at or failed_at < requested_at
   or (state = 'failed' and (active_at is not null or releasing_at is not null))
"""


def check_final_states(connection: Connection) -> Verdict:
    """Every step of every timeline is legal and follows the one before; the last one is the row's state."""
    verdict = Verdict("P8", "final states are final and every path is legal")
    verdict.count(connection, "select count(*) from allocation_timeline where kind = 'transition'")
    verdict.scan(connection, STEPS, "allocation {0} went from {1} (noted as {2}) to {3}")
    verdict.scan(connection, ENDS, "allocation {0} is {1}, but its timeline ends with {2}")
    verdict.scan(connection, TIMES, "allocation {0} ({1}) has times that contradict its path")
    return verdict
