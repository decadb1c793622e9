"""The chain of the audit: gapless, each hash over the hash before and the row, from its anchor to its head.

A row that was changed differs from its hash; a row that was removed leaves a gap, or a head beyond the last row. Rows up to the
anchor are in segments of the archive without a gap, and the last of these names the anchor's hash.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# Each hash is compared with that computed from the stored one before it, so all rows together form one chain, and a row that
# was removed makes the next one differ.
BROKEN = """
with chained as (
    select c.sequence, c.hash, lag(c.sequence, 1, a.sequence) over w as previous,
           lag(c.hash::bytea, 1, a.hash::bytea) over w as before,
           audit_canonical(c.sequence, c.recorded_at, row(
               c.id, c.at, c.principal_kind, c.principal_id, c.role, c.tenant_id, c.source, c.user_agent, c.action, c.subject,
               c.status, c.code, c.operation_key, c.request_id, c.correlation_id, c.detail)::audit_pending) as canonical
    from audit_chain c cross join audit_anchor a window w as (order by c.sequence)
)
select sequence, case when previous <> sequence - 1
                      then format('rows %%s to %%s are missing before it', previous + 1, sequence - 1)
                      else 'its hash is not that of the row before and its content' end
from chained
where hash <> sha256(before || convert_to(canonical, 'UTF8')) order by sequence
"""
CUT = """
select h.sequence, coalesce(l.sequence, a.sequence)
from audit_head h cross join audit_anchor a
     left join lateral (select sequence, hash from audit_chain order by sequence desc limit 1) l on true
where row(h.sequence, h.hash::bytea)
    is distinct from row(coalesce(l.sequence, a.sequence), coalesce(l.hash::bytea, a.hash::bytea))
"""
UNARCHIVED = """
select a.sequence, coalesce(s.audit_last, 0)
from audit_anchor a
     left join lateral (select audit_last, audit_hash from archive_segments where kind = 'audit'
                        order by audit_last desc limit 1) s on true
where row(a.sequence, a.hash::bytea)
    is distinct from row(coalesce(s.audit_last, 0), coalesce(s.audit_hash::bytea, decode(repeat('00', 32), 'hex')))
"""
GAPS = """
select sequence, audit_first, before from (
    select sequence, audit_first, lag(audit_last, 1, 0::bigint) over (order by audit_first) as before from archive_segments
    where kind = 'audit'
) s where audit_first <> before + 1
"""


def check_audit_chain(connection: Connection, _: Bounds) -> Verdict:
    """The rows of the audit are those that were recorded, none changed, and none removed that is not in the archive."""
    verdict = Verdict("audit", "the chain of the audit is complete and unchanged")
    verdict.count(connection, "select count(*) from audit_chain")
    verdict.scan(connection, BROKEN, "audit row {}: {}")
    verdict.scan(connection, CUT, "the audit ends at row {1}, and its head at {0}: rows were removed or added")
    verdict.scan(
        connection,
        UNARCHIVED,
        "the audit begins behind row {0}, and the segments of the archive end with row {1} or another hash",
    )
    verdict.scan(
        connection, GAPS, "segment {0} of the archive begins with audit row {1}, and the one before ends with {2}"
    )
    return verdict
