"""Named subscriptions of notifications: acknowledged positions and retention (docs/reference/notifications.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.refusals import LogTruncated, SubscriptionsFull
from orchestrator.log.store.feed import find_truncation
from orchestrator.problems import NotFound

# Locked first, so that what is there when a subscription is opened stays until it is acknowledged.
_BEGINNING = "select version from log_first for no key update"
_RESUME = """
update notification_subscriptions set kept_until = clock_timestamp() + make_interval(secs => :kept_seconds),
       versions_max = :versions_max, updated_at = clock_timestamp()
where scope = :scope and name = :name returning version
"""
_FORGET = "delete from notification_subscriptions where scope = :scope and kept_until <= clock_timestamp()"
_COUNT = "select count(*) from notification_subscriptions where scope = :scope"
_MAKE = """
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
where scope = :scope and kept_until > clock_timestamp() order by name
"""
_DELETE = "delete from notification_subscriptions where scope = :scope and name = :name returning version"


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long a subscription keeps the log: so long after it was last heard of, and so many versions at most."""

    kept_seconds: float
    versions_max: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """Everything up to `version` is acknowledged; what follows is kept until `kept_until`, within the bound on versions."""

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
    keeping: Keeping,
    subscriptions_max: int,
) -> int:
    """The version behind which it goes on; one that is new begins behind `begin`. From the commit on its events are kept.

    Raises `LogTruncated` where events behind that version are gone, `SubscriptionsFull` where another one may not be.
    """
    first: int = (await tx.execute(_BEGINNING)).scalar_one()
    values = {
        "scope": scope,
        "name": name,
        "kept_seconds": keeping.kept_seconds,
        "versions_max": keeping.versions_max,
    }
    version: int | None = (await tx.execute(_RESUME, values)).scalar_one_or_none()
    known = version is not None
    version = begin if version is None else version
    if (await find_truncation(tx, version, tenant_id))[1]:
        raise LogTruncated(
            f"events after version {version} are not kept any more; the log begins at {first}", first_version=first
        )
    if known:
        return version
    await tx.execute(_FORGET, {"scope": scope})
    if (await tx.execute(_COUNT, {"scope": scope})).scalar_one() >= subscriptions_max:
        raise SubscriptionsFull(f"there may be {subscriptions_max} subscriptions; remove one")
    await tx.execute(_MAKE, {**values, "version": version})
    return version


async def raise_positions(
    tx: Transaction, acknowledged: Sequence[tuple[UUID, str, int]], kept_seconds: float
) -> Mapping[tuple[UUID, str], int]:
    """Everything up to these versions is acknowledged: scope, name, version each. A position never goes back.

    Answers where those stand that are there; one that was removed is missing.
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


async def list_subscriptions(reading: Reading, scope: UUID) -> Sequence[Subscription]:
    """All that keep their place, by name; how many there are is bounded."""
    return [Subscription(**row._mapping) for row in await reading.execute(_LIST, {"scope": scope})]


async def delete_subscription(tx: Transaction, scope: UUID, name: str) -> int:
    """Forget where it was, and answer it. Raises `NotFound`."""
    version: int | None = (await tx.execute(_DELETE, {"scope": scope, "name": name})).scalar_one_or_none()
    if version is None:
        raise NotFound(f"there is no subscription {name!r}")
    return version
