"""P6, what it removes: after proof of cleanup no row contains the user data or the SSH keys of the allocation.

A provisioning task without them has the digest of what was signed (`payload_sha256`), so no payload is decoded here.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

KEPT_BY_ALLOCATION = """
select a.id, a.state from allocations a join claims c on c.id = a.claim_id
where c.closed_at is not null and (a.user_data is not null or cardinality(a.ssh_public_keys) > 0)
"""
KEPT_BY_TASK = """
select t.id, t.allocation_id from node_tasks t join allocations a on a.id = t.allocation_id join claims c on c.id = a.claim_id
where c.closed_at is not null and t.type in ('slice.vm_provision', 'allocation.provision_user')
  and not t.envelope ? 'payload_sha256'
"""
KEPT_BY_RESERVATION = "select id, state from reservations where ended_at is not null and template ? 'user_data'"


def check_removed_login_data(connection: Connection, _: Bounds) -> Verdict:
    """No allocation with a closed claim, none of its tasks and no ended reservation keeps user data or SSH keys."""
    verdict = Verdict("login data", "user data and SSH keys are removed when the cleanup is proven")
    verdict.count(connection, "select count(*) from claims where owner_kind = 'allocation' and closed_at is not null")
    verdict.scan(
        connection, KEPT_BY_ALLOCATION, "allocation {0}, {1}, is cleaned up and still has user data or SSH keys"
    )
    verdict.scan(connection, KEPT_BY_TASK, "task {0} of the cleaned-up allocation {1} still contains what was signed")
    verdict.scan(connection, KEPT_BY_RESERVATION, "reservation {0} is {1} and still has user data")
    return verdict
