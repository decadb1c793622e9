"""The chain of the audit: gapless, each hash over the hash before and the row, as long as its head says.

A row that was changed differs from its hash; a row that was removed leaves a gap, or a head beyond the last row.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

# Each hash is compared with that computed from the stored one before it, so all rows together form one chain, and a row that
# was removed makes the next one differ.
BROKEN = """
with chained as (
    select c.sequence, c.hash, lag(c.sequence, 1, 0::bigint) over w as previous,
           lag(c.hash::bytea, 1, decode(repeat('00', 32), 'hex')) over w as before,
           audit_canonical(c.sequence, c.recorded_at, row(
               c.id, c.at, c.principal_kind, c.principal_id, c.role, c.tenant_id, c.source, c.user_agent, c.action, c.subject,
               c.status, c.code, c.operation_key, c.request_id, c.correlation_id, c.detail)::audit_pending) as canonical
    from audit_chain c window w as (order by c.sequence)
)
select sequence, case when previous <> sequence - 1
                      then format('rows %%s to %%s are missing before it', previous + 1, sequence - 1)
                      else 'its hash is not that of the row before and its content' end
from chained
where hash <> sha256(before || convert_to(canonical, 'UTF8')) order by sequence
"""
CUT = """
select h.sequence, coalesce(l.sequence, 0)
from audit_head h left join lateral (select sequence, hash from audit_chain order by sequence desc limit 1) l on true
where row(h.sequence, h.hash::bytea)
    is distinct from row(coalesce(l.sequence, 0), coalesce(l.hash::bytea, decode(repeat('00', 32), 'hex')))
"""


def check_audit_chain(connection: Connection, _: Bounds) -> Verdict:
    """The rows of the audit are those that were recorded, none changed and none removed."""
    verdict = Verdict("audit", "the chain of the audit is complete and unchanged")
    verdict.count(connection, "select count(*) from audit_chain")
    verdict.scan(connection, BROKEN, "audit row {}: {}")
    verdict.scan(connection, CUT, "the audit ends at row {1}, and its head at {0}: rows were removed or added")
    return verdict
