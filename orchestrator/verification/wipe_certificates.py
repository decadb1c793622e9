"""Wipe certificates: each is what was signed, the next of its node's chain, and there where a node signed a statement."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

ALTERED = """
with signed as (
    select w.*, decode(w.countersignature ->> 'payload', 'base64') as payload,
           decode(w.statement ->> 'payload', 'base64') as stated
    from wipe_certificates w
), link as (
    select s.*, convert_from(s.payload, 'UTF8')::jsonb as content from signed s
)
select allocation_id from link
where sha256(payload) <> sha256 or content ->> 'statement_sha256' <> encode(sha256(stated), 'hex')
   or content ->> 'allocation_id' <> allocation_id::text or content ->> 'node_id' <> node_id::text
   or content ->> 'number' <> number::text
   or content ->> 'previous_sha256' is distinct from encode(previous_sha256, 'hex')
"""
# Certificates leave their table with their allocations; the head of a chain stays.
UNCHAINED = """
select w.allocation_id, w.node_id from wipe_certificates w
join wipe_certificates p on p.node_id = w.node_id and p.number = w.number - 1 where p.sha256 <> w.previous_sha256
union all
select w.allocation_id, w.node_id from wipe_certificates w left join wipe_chains h on h.node_id = w.node_id
where h.node_id is null or w.number > h.number or w.number = h.number and w.sha256 <> h.sha256
"""
# A worker of an earlier Berth stores the statement with the result and issues no certificate.
MISSING = """
select distinct a.id from node_tasks t join allocations a on a.id = t.allocation_id
where t.state = 'completed' and t.type in ('slice.vm_release', 'allocation.deprovision_user')
  and jsonb_typeof(t.result -> 'wipe_statement') = 'object' and a.state = 'released'
  and a.release_result ->> 'wiped' = 'true' and not a.release_result ? 'wipe_statement'
  and not exists (select from wipe_certificates w where w.allocation_id = a.id)
"""


def check_wipe_certificates(connection: Connection, _: Bounds) -> Verdict:
    """No certificate was changed, removed or put between two others."""
    verdict = Verdict("wipe certificates", "a wipe certificate is what was signed, and in the chain of its node")
    verdict.count(connection, "select count(*) from wipe_certificates")
    verdict.scan(connection, ALTERED, "the wipe certificate of allocation {0} differs from what was countersigned")
    verdict.scan(connection, UNCHAINED, "the wipe certificate of allocation {0} is not in the chain of node {1}")
    verdict.scan(connection, MISSING, "allocation {0} was wiped and has no wipe certificate")
    return verdict
