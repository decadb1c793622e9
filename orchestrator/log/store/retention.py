"""Retention policies, which keep the log from being truncated (docs/reference/log-retention.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.namespaces import OPERATORS_NAMESPACE
from orchestrator.log.refusals import LogTruncated, RetentionOutOfBounds, VersionInFuture
from orchestrator.operations.store.tenancy import require_quota
from orchestrator.problems import NotFound, Quota

# Locked before the check, so that nothing is truncated between the check and the commit.
_LOCK_FIRST_VERSION = "select version from log_first for no key update"
_HEAD = """
select h.version as head from log_head h
"""
_OTHERS = "select count(*) from retention_policies where scope = :scope and policy_id <> :policy_id"
_PUT = """
insert into retention_policies (scope, policy_id, prevent_truncate, versions_max)
values (:scope, :policy_id, :prevent_truncate, :versions_max)
on conflict (scope, policy_id) do update
set prevent_truncate = excluded.prevent_truncate, versions_max = excluded.versions_max, updated_at = clock_timestamp()
returning old.policy_id is null as made, created_at, updated_at
"""
_DELETE = "delete from retention_policies where scope = :scope and policy_id = :policy_id returning prevent_truncate"
_LIST = """
select p.policy_id, p.prevent_truncate, greatest(1, p.prevent_truncate, h.version - p.versions_max) as kept_from,
       p.created_at, p.updated_at
from retention_policies p cross join log_head h
where p.scope = :scope and (cast(:policy_id as text) is null or p.policy_id = :policy_id) order by p.policy_id
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy keeps versions from `kept_from` on: from `prevent_truncate`, or from a tenant's bound if that is later."""

    policy_id: str
    prevent_truncate: int
    kept_from: int
    created_at: datetime
    updated_at: datetime


async def put_policy(
    tx: Transaction, scope: UUID, policy_id: str, prevent_truncate: int, *, versions_max: int | None, policies_max: int
) -> tuple[Policy, bool]:
    """Create or change a policy; return it, and whether it was created. It holds from the commit on.

    Raises `LogTruncated` if a named version was dropped, `VersionInFuture` after the next one, `RetentionOutOfBounds` if it is
    more than `versions_max` behind the head, `QuotaExceeded`.
    """
    first: int = (await tx.execute(_LOCK_FIRST_VERSION)).scalar_one()
    state = (await tx.execute(_HEAD)).one()
    head: int = state.head
    if prevent_truncate > head + 1:
        raise VersionInFuture(f"version {prevent_truncate} does not exist; the log ends at {head}", version=head)
    if prevent_truncate < first and first > 1:
        raise LogTruncated(
            f"version {prevent_truncate} was truncated; the log begins at {first}",
            first_version=first,
            version=head,
        )
    if versions_max is not None and max(1, prevent_truncate) < head - versions_max:
        least = head - versions_max
        raise RetentionOutOfBounds(
            f"a tenant's policy keeps at most {versions_max} versions; name version {least} or a later one",
            prevent_truncate_min=least,
        )
    named = {"scope": scope, "policy_id": policy_id}
    tenant_id = None if scope == OPERATORS_NAMESPACE else scope
    await require_quota(tx, tenant_id, Quota.RETENTION_POLICIES, _OTHERS, named, default=policies_max)
    values = {**named, "prevent_truncate": prevent_truncate}
    row = (await tx.execute(_PUT, {**values, "versions_max": versions_max})).one()
    policy = Policy(policy_id, prevent_truncate, max(1, prevent_truncate), row.created_at, row.updated_at)
    return policy, row.made


async def delete_policy(tx: Transaction, scope: UUID, policy_id: str) -> int:
    """Delete a policy; return its version. Raises `NotFound`."""
    gone: int | None = (await tx.execute(_DELETE, {"scope": scope, "policy_id": policy_id})).scalar_one_or_none()
    if gone is None:
        raise _not_found(policy_id)
    return gone


async def read_policy(reading: Reading, scope: UUID, policy_id: str) -> Policy:
    """Return one policy. Raises `NotFound`."""
    row = (await reading.execute(_LIST, {"scope": scope, "policy_id": policy_id})).first()
    if row is None:
        raise _not_found(policy_id)
    return Policy(**row._mapping)


async def list_policies(reading: Reading, scope: UUID) -> Sequence[Policy]:
    """Return all policies by id; their number is bounded."""
    return [Policy(**row._mapping) for row in await reading.execute(_LIST, {"scope": scope, "policy_id": None})]


def _not_found(policy_id: str) -> NotFound:
    return NotFound(f"there is no retention policy {policy_id!r}")
