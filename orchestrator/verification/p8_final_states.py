"""P8: final states are final. Every allocation's timeline is a legal path (DESIGN §4) that ends where the row is."""

from __future__ import annotations

from psycopg.sql import SQL

from orchestrator.verification.verdict import Bounds, Connection, Verdict

LEGAL = SQL("""
legal (came, went, actors) as (values
    ('', 'requested', '{tenant,admin}'::text[]),
    ('requested', 'provisioning', '{worker}'), ('requested', 'failed', '{worker}'),
    ('requested', 'releasing', '{tenant,admin}'), ('provisioning', 'releasing', '{tenant,admin}'),
    ('provisioning', 'active', '{worker}'), ('provisioning', 'failed', '{worker}'),
    ('active', 'releasing', '{tenant,billing,admin}'),
    ('releasing', 'released', '{worker,admin}'), ('releasing', 'release_failed', '{worker}'),
    ('release_failed', 'releasing', '{tenant,admin}')
)
""")
"""The transitions of DESIGN §4 and their actors, written down a second time: a check must not trust the checked."""

STEPS = (
    SQL("with ")
    + LEGAL
    + SQL("""
, steps as (
    select allocation_id, from_state, to_state, row_version, at, actor_kind, lag(to_state) over story as before,
           lag(row_version) over story as version_before, lag(at) over story as at_before
    from allocation_timeline where kind = 'transition' window story as (partition by allocation_id order by id)
)
select s.allocation_id, case
    when s.from_state is distinct from s.before or l.went is null
        then format('went from %%s (noted as %%s) to %%s', coalesce(s.before, 'nothing'),
                    coalesce(s.from_state, 'nothing'), s.to_state)
    when s.actor_kind <> all (l.actors) then format('was made %%s by %%s', s.to_state, s.actor_kind)
    when s.row_version <= s.version_before
        then format('became %%s with row version %%s after %%s', s.to_state, s.row_version, s.version_before)
    else format('became %%s at %%s, before the step that precedes it', s.to_state, s.at)
end
from steps s left join legal l on l.came = coalesce(s.before, '') and l.went = s.to_state
where s.from_state is distinct from s.before or l.went is null
   or s.actor_kind <> all (l.actors) and not (s.actor_kind = 'system' and s.to_state = 'released' and exists (
      -- Released while it waited for its units: there was nothing to clean up.
      select from allocations a join claims c on c.id = a.claim_id where a.id = s.allocation_id and c.occupied_from is null))
      -- Recorded by an operator, as it ran already.
      and not (s.actor_kind = 'admin' and s.to_state in ('provisioning', 'active') and exists (
      select from allocations a where a.id = s.allocation_id and a.adoption is not null))
   or s.row_version <= s.version_before or s.at < s.at_before
""")
)
# The times of the row are those of the story. Metered time never reopens, so the first `releasing` is the one.
ENDS = """
with stories as (
    select allocation_id, array_agg(to_state order by id) as states, max(row_version) as row_version,
           min(at) filter (where to_state = 'requested') as requested_at,
           min(at) filter (where to_state = 'active') as active_at,
           min(at) filter (where to_state = 'releasing') as releasing_at,
           max(at) filter (where to_state = 'release_failed') as release_failed_at,
           min(at) filter (where to_state = 'released') as released_at,
           min(at) filter (where to_state = 'failed') as failed_at
    from allocation_timeline where kind = 'transition' group by allocation_id
)
select a.id, a.state, case when s.states[cardinality(s.states)] = a.state and s.row_version <= a.row_version
                           then 'it has times that contradict its timeline'
                           else 'its timeline ends with ' || coalesce(s.states[cardinality(s.states)], 'nothing') end
from allocations a left join stories s on s.allocation_id = a.id
where s.states[cardinality(s.states)] is distinct from a.state or s.row_version > a.row_version
   or (a.requested_at, a.active_at, a.releasing_at, a.release_failed_at, a.released_at, a.failed_at) is distinct from
      (s.requested_at, s.active_at, s.releasing_at, s.release_failed_at, s.released_at, s.failed_at)
"""


def check_final_states(connection: Connection, _: Bounds) -> Verdict:
    """Every step of every timeline is legal for its actor, and later than the one before; the last is the row's."""
    verdict = Verdict("P8", "final states are final and every path is legal")
    verdict.count(connection, "select count(*) from allocation_timeline where kind = 'transition'")
    verdict.scan(connection, STEPS, "allocation {0} {1}")
    verdict.scan(connection, ENDS, "allocation {0} is {1}, but {2}")
    return verdict
