"""Named subscriptions: their offsets, and how long each delays truncation (docs/reference/notifications.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.refusals import LogTruncated
from orchestrator.log.store.feed import find_truncation
from orchestrator.operations.store.tenancy import require_quota
from orchestrator.problems import NotFound, Quota

# Locked before the check, so that nothing after the offset is truncated before the commit.
_LOCK_FIRST_VERSION = "select version from log_first for no key update"
_RESUME = """
update notification_subscriptions set kept_until = clock_timestamp() + make_interval(secs => :kept_seconds),
       versions_max = :versions_max, updated_at = clock_timestamp()
where scope = :scope and name = :name returning version
"""
_DELETE_LAPSED = "delete from notification_subscriptions where scope = :scope and kept_until <= clock_timestamp()"
_COUNT = "select count(*) from notification_subscriptions where scope = :scope"
_INSERT = """
insert into notification_subscriptions (scope, name, version, versions_max, kept_until)
values (:scope, :name, :version, :versions_max, clock_timestamp() + make_interval(secs => :kept_seconds))
"""
_RAISE = """
with acknowledged as (
    select distinct on (scope, name) scope, name, version
    from unnest(cast(:scopes as uuid[]), cast(:names as text[]), cast(:versions as bigint[])) given(scope, name, version)
    order by scope, name, version desc
), locked as (
    select s.scope, s.name, a.version from notification_subscriptions s join acknowledged a using (scope, name)
    order by s.scope, s.name for no key update of s
)
update notification_subscriptions s
set version = greatest(s.version, l.version), updated_at = clock_timestamp(),
    kept_until = clock_timestamp() + make_interval(secs => :kept_seconds)
from locked l where s.scope = l.scope and s.name = l.name
returning s.scope, s.name, s.version
"""
_LIST = """
select name, version, kept_until, created_at, updated_at from notification_subscriptions
where scope = :scope and name > :after and kept_until > clock_timestamp() order by name limit :limit
"""
_DELETE = "delete from notification_subscriptions where scope = :scope and name = :name returning version"


@dataclass(frozen=True, slots=True)
class SubscriptionRetention:
    """How long a subscription keeps the log: seconds after its last acknowledgement, and at most this many versions."""

    kept_seconds: float
    versions_max: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription: `version` is acknowledged; later events are kept until `kept_until`, within the bound on versions."""

    name: str
    version: int
    kept_until: datetime
    created_at: datetime
    updated_at: datetime


async def open_subscription(
    tx: Transaction,
    scope: UUID,
    name: str,
    begin: int,
    *,
    tenant_id: UUID | None,
    retention: SubscriptionRetention,
    subscriptions_max: int,
) -> tuple[int, bool]:
    """Open a subscription, or create it at `begin`; return its offset and whether it is new. Events after it are kept.

    Raises `LogTruncated` if events after that version were dropped, `QuotaExceeded`.
    """
    first: int = (await tx.execute(_LOCK_FIRST_VERSION)).scalar_one()
    values = {
        "scope": scope,
        "name": name,
        "kept_seconds": retention.kept_seconds,
        "versions_max": retention.versions_max,
    }
    version: int | None = (await tx.execute(_RESUME, values)).scalar_one_or_none()
    known = version is not None
    version = begin if version is None else version
    if (await find_truncation(tx, version, tenant_id))[1]:
        raise LogTruncated(
            f"events after version {version} were truncated; the log begins at {first}", first_version=first
        )
    if known:
        return version, False
    await tx.execute(_DELETE_LAPSED, {"scope": scope})
    await require_quota(tx, tenant_id, Quota.SUBSCRIPTIONS, _COUNT, {"scope": scope}, default=subscriptions_max)
    await tx.execute(_INSERT, {**values, "version": version})
    return version, True


async def raise_positions(
    tx: Transaction, acknowledged: Sequence[tuple[UUID, str, int]], kept_seconds: float
) -> Mapping[tuple[UUID, str], int]:
    """Raise offsets, given as (scope, name, version); an offset never goes back.

    Returns the offsets of the existing subscriptions; a removed one is missing.
    """
    rows = await tx.execute(
        _RAISE,
        {
            "scopes": [scope for scope, _, _ in acknowledged],
            "names": [name for _, name, _ in acknowledged],
            "versions": [version for _, _, version in acknowledged],
            "kept_seconds": kept_seconds,
        },
    )
    return {(row.scope, row.name): row.version for row in rows}


async def list_subscriptions(reading: Reading, scope: UUID, after: str, limit: int) -> Sequence[Subscription]:
    """Return up to `limit` subscriptions of a scope by name."""
    rows = await reading.execute(_LIST, {"scope": scope, "after": after, "limit": limit})
    return [Subscription(**row._mapping) for row in rows]


async def delete_subscription(tx: Transaction, scope: UUID, name: str) -> int:
    """Delete a subscription; return its offset. Raises `NotFound`."""
    version: int | None = (await tx.execute(_DELETE, {"scope": scope, "name": name})).scalar_one_or_none()
    if version is None:
        raise NotFound(f"there is no subscription {name!r}")
    return version
