"""Archived allocations: nothing of one is left in its tables, and each is counted by its segment."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

LEFT = """
select x.allocation_id, l.what from archived_allocations x join (
    select id, 'a row' as what from allocations
    union all
    select owner_id, 'a claim' from claims where owner_kind = 'allocation'
    union all
    select allocation_id, 'a timeline' from allocation_timeline
    union all
    select allocation_id, 'a task' from node_tasks
) l on l.id = x.allocation_id
"""
MISCOUNTED = """
select s.sequence, s.deleted, count(x.allocation_id) from archive_segments s
left join archived_allocations x on x.segment = s.sequence where s.kind = 'allocations'
group by s.sequence having count(x.allocation_id) <> s.deleted
"""
MISSING = """
select s.sequence from archive_segments s
where s.sequence > 1 and not exists (select from archive_segments p where p.sequence = s.sequence - 1)
"""


def check_archived(connection: Connection, _: Bounds) -> Verdict:
    """An allocation is either in the archive or in the tables, and the segments have no gap."""
    verdict = Verdict("archive", "an archived allocation is deleted whole, and its segment is known")
    verdict.count(connection, "select count(*) from archived_allocations")
    verdict.scan(connection, LEFT, "allocation {0} is archived and still has {1}")
    verdict.scan(connection, MISCOUNTED, "segment {0} of the archive deleted {1} allocations and {2} are known")
    verdict.scan(connection, MISSING, "the segment before segment {0} of the archive is missing")
    return verdict
