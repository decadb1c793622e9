"""What webhooks had to deliver, and what came of it; the log of deliveries, replays and test messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.event_messages import TEST_TYPE
from orchestrator.log.refusals import LogTruncated
from orchestrator.problems import InvalidState, NotFound
from orchestrator.webhooks.rules import WebhookBusy


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one webhook. `number` names it; `event_id` is its `webhook-id`. `history`: its last attempts."""

    number: int
    version: int | None
    event_id: UUID
    event_type: str
    state: str
    attempts: int
    next_attempt_at: datetime | None
    attempted_at: datetime | None
    duration_ms: int | None
    response_status: int | None
    response_excerpt: str | None
    error: str | None
    history: Sequence[dict[str, Any]]
    created_at: datetime
    ended_at: datetime | None


_COLUMNS = """
d.number, d.version, d.event_id, d.event_type, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.duration_ms,
d.response_status, d.response_excerpt, d.error, d.history, d.created_at, d.ended_at"""
_LIST = f"""
select {_COLUMNS} from webhook_deliveries d
where d.webhook_id = :webhook_id and d.number < :before and (cast(:state as text) is null or d.state = :state)
order by d.number desc limit :limit
"""
_READ = f"select {_COLUMNS} from webhook_deliveries d where d.webhook_id = :webhook_id and d.number = :number"
# Locked first, so that what is there when a replay is judged is there when its attempts read it.
_BEGINNING = "select version from log_first for no key update"
_STANDING = """
select w.state, (select count(*) from webhook_deliveries d where d.webhook_id = w.id and d.state = 'pending') as pending
from webhooks w where w.id = :webhook_id
"""
_AGAIN = "state = 'pending', next_attempt_at = clock_timestamp(), ended_at = null"
_REPLAY_ONE = f"""
update webhook_deliveries d set attempts = case when d.state = 'pending' then d.attempts else 0 end, {_AGAIN}
where d.webhook_id = :webhook_id and d.number = :number and not d.leased returning {_COLUMNS}
"""
_REPLAY_FAILED = f"""
with chosen as materialized (
    select d.number from webhook_deliveries d
    where d.webhook_id = :webhook_id and d.state = 'failed' and d.ended_at >= :since and d.version >= :first
    order by d.number limit :limit
)
update webhook_deliveries d set attempts = 0, {_AGAIN} from chosen
where d.webhook_id = :webhook_id and d.number = chosen.number
"""
_FAILED = """
select count(*) filter (where d.version >= :first) as left, count(*) filter (where d.version < :first) as truncated
from webhook_deliveries d
where d.webhook_id = :webhook_id and d.state = 'failed' and d.ended_at >= :since and d.version is not null
"""
_TEST = f"""
with numbering as (update webhooks set numbered = numbered + 1 where id = :webhook_id returning id, numbered)
insert into webhook_deliveries as d (webhook_id, number, event_id, event_type)
select id, numbered, uuidv7(), '{TEST_TYPE}' from numbering returning {_COLUMNS}
"""
_SWEEP = """
with old as materialized (
    select d.webhook_id, d.number from webhook_deliveries d
    where d.ended_at < statement_timestamp() - make_interval(secs => :seconds) order by d.ended_at limit :limit
), many as materialized (
    select d.webhook_id, d.number from webhooks w cross join lateral (
        select * from webhook_deliveries x
        where x.webhook_id = w.id and x.number <= case when w.state = 'deleted' then w.numbered else w.numbered - :kept end
        order by x.number limit :limit
    ) d where d.ended_at is not null limit :limit
), gone as (
    delete from webhook_deliveries d using (select * from old union select * from many) x
    where d.webhook_id = x.webhook_id and d.number = x.number returning 1
)
select count(*) from gone
"""
_SWEEP_WEBHOOKS = """
delete from webhooks w where w.state = 'deleted'
and not exists (select from webhook_deliveries d where d.webhook_id = w.id)
"""


async def list_deliveries(
    reading: Reading, webhook_id: UUID, *, state: str | None, before: int, limit: int
) -> list[Delivery]:
    """Up to `limit` of a webhook's, the newest first, below the number `before`."""
    values = {"webhook_id": webhook_id, "state": state, "before": before, "limit": limit}
    return [_delivery(row) for row in await reading.execute(_LIST, values)]


async def read_delivery(reading: Reading, webhook_id: UUID, number: int) -> Delivery:
    """One. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"webhook_id": webhook_id, "number": number})).first()
    if row is None:
        raise NotFound(f"there is no delivery {number} of this webhook")
    return _delivery(row)


async def replay_one(tx: Transaction, webhook_id: UUID, number: int, *, pending_max: int) -> Delivery:
    """It is sent again at once, from the beginning of the schedule if it had ended. The webhook is locked after the log's
    beginning (`hold_beginning`). Raises `NotFound`, `InvalidState`, `LogTruncated`, `WebhookBusy`.
    """
    first: int = (await tx.execute(_BEGINNING)).scalar_one()
    found = await read_delivery(tx, webhook_id, number)
    await _require_room(tx, webhook_id, pending_max, by_test=found.version is None)
    if found.version is not None and found.version < first:
        raise _truncated(first)
    row = (await tx.execute(_REPLAY_ONE, {"webhook_id": webhook_id, "number": number})).first()
    if row is None:
        raise InvalidState("an attempt is under way", state=found.state)
    return _delivery(row)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many are sent again; how many more failed in that time, and how many of them the log does not hold any more."""

    replayed: int
    left: int
    truncated: int


async def replay_failed(tx: Transaction, webhook_id: UUID, since: datetime, *, pending_max: int) -> Replayed:
    """What has failed since then is sent again, the oldest first, as far as there is room. As `replay_one` otherwise."""
    first: int = (await tx.execute(_BEGINNING)).scalar_one()
    room = await _require_room(tx, webhook_id, pending_max, by_test=False)
    values = {"webhook_id": webhook_id, "since": since, "first": first}
    replayed = (await tx.execute(_REPLAY_FAILED, {**values, "limit": room})).rowcount
    rest = (await tx.execute(_FAILED, values)).one()
    return Replayed(replayed, rest.left, rest.truncated)


async def hold_beginning(tx: Transaction) -> None:
    """What the log holds it holds until this commits: to be taken before a webhook is locked."""
    await tx.execute(_BEGINNING)


async def add_test(tx: Transaction, webhook_id: UUID, *, pending_max: int) -> Delivery:
    """A test message for the locked webhook, enabled or not. Raises `WebhookBusy`."""
    await _require_room(tx, webhook_id, pending_max, by_test=True)
    return _delivery((await tx.execute(_TEST, {"webhook_id": webhook_id})).one())


async def sweep_deliveries(tx: Transaction, *, seconds: float, kept: int, limit: int) -> int:
    """Forget what ended longer ago than this, what is beyond the newest `kept` of its webhook, and what deleted webhooks
    left; how many that were.
    """
    gone: int = (await tx.execute(_SWEEP, {"seconds": seconds, "kept": kept, "limit": limit})).scalar_one()
    if gone == 0:
        await tx.execute(_SWEEP_WEBHOOKS)
    return gone


async def _require_room(tx: Transaction, webhook_id: UUID, pending_max: int, *, by_test: bool) -> int:
    standing = (await tx.execute(_STANDING, {"webhook_id": webhook_id})).one()
    if standing.state != "enabled" and not by_test:
        raise InvalidState("the webhook is disabled; enable it first", state=standing.state)
    if standing.pending >= pending_max:
        raise WebhookBusy(f"{standing.pending} deliveries wait for their attempts, which is the most")
    return pending_max - int(standing.pending)


def _truncated(first: int) -> LogTruncated:
    return LogTruncated(f"its event is not kept any more; the log begins at {first}", first_version=first)


def _delivery(row: Any) -> Delivery:
    return Delivery(**row._mapping)
