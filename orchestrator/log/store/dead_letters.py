"""Dead letters: events that a consumer of the log gave up on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import InvalidState, NotFound

DETAIL_LENGTH_MAX = 1_000
EXCERPT_LENGTH_MAX = 4_000
EVENT_TYPE_LENGTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Burial:
    """An event that its consumer gives up on; `version` is its position in the log and in the stream."""

    consumer: str
    version: int
    event_id: UUID | None
    event_type: str | None
    reason: str
    detail: str
    excerpt: str
    tries: int
    trying_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as returned to operators."""

    id: UUID
    consumer: str
    version: int
    event_id: UUID | None
    event_type: str | None
    reason: str
    detail: str
    excerpt: str
    tries: int
    state: str
    first_at: datetime
    last_at: datetime
    retry_asked_at: datetime | None
    settled_at: datetime | None
    row_version: int


@dataclass(frozen=True, slots=True)
class DueRetry:
    """A dead letter whose retry was requested, with its event; `document` is None if the log has no such version."""

    id: UUID
    version: int
    document: JsonObject | None


# A settled dead letter stays settled: a redelivery of a discarded or handled event changes nothing.
_BURY = """
insert into dead_letters (consumer, version, event_id, event_type, reason, detail, excerpt, tries, first_at)
values (:consumer, :version, :event_id, :event_type, :reason, :detail, :excerpt, :tries,
        clock_timestamp() - make_interval(secs => :trying_seconds))
on conflict (consumer, version) do update set tries = dead_letters.tries + excluded.tries, reason = excluded.reason,
    detail = excluded.detail, last_at = clock_timestamp(), row_version = dead_letters.row_version + 1
where dead_letters.state = 'dead'
returning id
"""
_LIST = """
select id, consumer, version, event_id, event_type, reason, detail, excerpt, tries, state, first_at, last_at,
       retry_asked_at, settled_at, row_version
from dead_letters
where id > :after and (cast(:state as text) is null or state = :state)
  and (cast(:consumer as text) is null or consumer = :consumer)
order by id limit :limit
"""
_READ = """
select id, consumer, version, event_id, event_type, reason, detail, excerpt, tries, state, first_at, last_at,
       retry_asked_at, settled_at, row_version
from dead_letters where id = :id
"""
_LOCK = """
select id, consumer, version, event_id, event_type, reason, detail, excerpt, tries, state, first_at, last_at,
       retry_asked_at, settled_at, row_version
from dead_letters where id = :id for no key update
"""
_ASK = """
update dead_letters set retry_asked_at = coalesce(retry_asked_at, clock_timestamp()), row_version = row_version + 1
where id = :id
"""
_DISCARD = """
update dead_letters set state = 'discarded', settled_at = clock_timestamp(), retry_asked_at = null,
       row_version = row_version + 1
where id = :id
"""
# The members are those of a message from the relay, so that one parser reads both (docs/reference/events.md).
_DUE = """
select d.id, d.version,
       case when l.version is not null then jsonb_build_object(
           'id', l.event_id, 'type', 'berth.' || l.event_type, 'time', l.occurred_at,
           'correlationid', l.correlation_id, 'data', l.payload) end as document
from dead_letters d left join log l on l.version = d.version
where d.consumer = :consumer and d.retry_asked_at is not null
order by d.retry_asked_at, d.id limit :limit
"""
_HANDLED = """
update dead_letters set state = 'retried', tries = tries + 1, settled_at = clock_timestamp(), retry_asked_at = null,
       last_at = clock_timestamp(), row_version = row_version + 1
where id = :id and state = 'dead' and retry_asked_at is not null returning id
"""
_FAILED_AGAIN = """
update dead_letters set reason = :reason, detail = :detail, tries = tries + 1, retry_asked_at = null,
       last_at = clock_timestamp(), row_version = row_version + 1
where id = :id and state = 'dead' and retry_asked_at is not null returning id
"""
_COUNT = "select count(*) from dead_letters where consumer = :consumer and state = 'dead'"
_RETIRE = """
with picked as (
    select id from dead_letters
    where settled_at < (select clock_timestamp() - make_interval(secs => :retention_seconds))
    order by settled_at limit :limit for update skip locked
), gone as (
    delete from dead_letters d using picked p where d.id = p.id returning 1
)
select count(*) from gone
"""


async def bury(tx: Transaction, burial: Burial) -> bool:
    """Store a dead letter, or add the tries to an existing one. False if it was settled and stays so."""
    found = await tx.execute(
        _BURY,
        {
            "consumer": burial.consumer,
            "version": burial.version,
            "event_id": burial.event_id,
            "event_type": None if burial.event_type is None else _storable(burial.event_type, EVENT_TYPE_LENGTH_MAX),
            "reason": burial.reason,
            "detail": _storable(burial.detail, DETAIL_LENGTH_MAX),
            "excerpt": _storable(burial.excerpt, EXCERPT_LENGTH_MAX),
            "tries": burial.tries,
            "trying_seconds": burial.trying_seconds,
        },
    )
    return found.first() is not None


def _storable(text: str, length_max: int) -> str:
    """Return the text as PostgreSQL can store it, cut to the column's length."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")[:length_max]


async def list_dead_letters(
    reading: Reading, *, state: str | None, consumer: str | None, after: UUID, limit: int
) -> list[DeadLetter]:
    """Return up to `limit` dead letters after this id, oldest first."""
    rows = await reading.execute(_LIST, {"state": state, "consumer": consumer, "after": after, "limit": limit})
    return [DeadLetter(**row._mapping) for row in rows]


async def read_dead_letter(reading: Reading, dead_letter_id: UUID) -> DeadLetter:
    """Return one dead letter. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"id": dead_letter_id})).first()
    if row is None:
        raise NotFound(f"there is no dead letter {dead_letter_id}")
    return DeadLetter(**row._mapping)


async def lock_dead(tx: Transaction, dead_letter_id: UUID) -> DeadLetter:
    """Lock and return a dead letter. Raises `NotFound`, or `InvalidState` if it is settled."""
    row = (await tx.execute(_LOCK, {"id": dead_letter_id})).first()
    if row is None:
        raise NotFound(f"there is no dead letter {dead_letter_id}")
    found = DeadLetter(**row._mapping)
    if found.state != "dead":
        raise InvalidState(f"the dead letter is already {found.state}", state=found.state)
    return found


async def ask_for_retry(tx: Transaction, dead_letter_id: UUID) -> None:
    """Request a retry of a locked dead letter; a repeated request changes nothing."""
    await tx.execute(_ASK, {"id": dead_letter_id})


async def discard(tx: Transaction, dead_letter_id: UUID) -> None:
    """Discard a locked dead letter."""
    await tx.execute(_DISCARD, {"id": dead_letter_id})


async def find_due_retries(reading: Reading, consumer: str, limit: int) -> list[DueRetry]:
    """Return up to `limit` of a consumer's dead letters with a requested retry, the oldest request first."""
    rows = await reading.execute(_DUE, {"consumer": consumer, "limit": limit})
    return [DueRetry(**row._mapping) for row in rows]


async def settle_retry(tx: Transaction, dead_letter_id: UUID, failure: tuple[str, str] | None) -> bool:
    """Record a retry: `failure` is None if it was handled, else reason and detail. False if it was settled before."""
    if failure is None:
        return (await tx.execute(_HANDLED, {"id": dead_letter_id})).first() is not None
    reason, detail = failure
    values = {"id": dead_letter_id, "reason": reason, "detail": _storable(detail, DETAIL_LENGTH_MAX)}
    return (await tx.execute(_FAILED_AGAIN, values)).first() is not None


async def count_dead(reading: Reading, consumer: str) -> int:
    """Return how many dead letters of a consumer are not settled."""
    count: int = (await reading.execute(_COUNT, {"consumer": consumer})).scalar_one()
    return count


async def delete_settled(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` dead letters settled more than `retention_seconds` ago, oldest first; return how many."""
    values = {"retention_seconds": retention_seconds, "limit": limit}
    count: int = (await tx.execute(_RETIRE, values)).scalar_one()
    return count
