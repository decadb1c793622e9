"""P13: everything is bounded. Of the bounds, those that the rows themselves can show."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

PROGRESS_PER_FENCE_MAX = 64
EVENT_BYTES_MAX = 262_144

TALKATIVE = """
select allocation_id, fence, count(*) from allocation_timeline where kind = 'progress'
group by allocation_id, fence having count(*) > %(most)s
"""
TWO_TASKS = """
select subject, count(*) from node_tasks cross join lateral coalesce(allocation_id, orphan_id) subject
where subject is not null and state in ('queued', 'dispatched') group by subject having count(*) > 1
"""
# A payload's stored size is a lower bound that costs nothing, so only what is large is written out to be measured.
HEAVY = """
select version, octet_length(payload::text) from log
where pg_column_size(payload) > 2048 and octet_length(payload::text) > %(most)s
"""
KEPT_TOO_LONG = """
select count(*), extract(epoch from clock_timestamp() - min(retire_after))::integer from operations
where retire_after < clock_timestamp() - make_interval(secs => %(seconds)s) having count(*) > 0
"""
KEPT_RESERVATIONS = """
select count(*), extract(epoch from clock_timestamp() - min(retire_after))::integer from reservations
where retire_after < clock_timestamp() - make_interval(secs => %(seconds)s) having count(*) > 0
"""


def check_bounds(connection: Connection, bounds: Bounds) -> Verdict:
    """One live task an allocation or orphan, progress and events within their sizes, answers forgotten in time."""
    verdict = Verdict("P13", "tasks, stories, events and answers stay within their bounds")
    verdict.count(connection, "select count(*) from log")
    verdict.scan(
        connection, TALKATIVE, "allocation {0} has {2} progress entries under fence {1}", most=PROGRESS_PER_FENCE_MAX
    )
    verdict.scan(connection, TWO_TASKS, "{0} has {1} live tasks")
    verdict.scan(connection, HEAVY, "version {0} carries {1} bytes", most=EVENT_BYTES_MAX)
    verdict.scan(
        connection,
        KEPT_TOO_LONG,
        "{0} answers are kept past their time, the oldest by {1} s; is the worker running?",
        seconds=bounds.retirement_seconds,
    )
    verdict.scan(
        connection,
        KEPT_RESERVATIONS,
        "{0} reservations are kept past their time, the oldest by {1} s; is the worker running?",
        seconds=bounds.retirement_seconds,
    )
    return verdict
