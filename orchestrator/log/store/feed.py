"""The log's events as the feed tells them, bounded in number and bytes. Postgres writes the JSON, which is passed on unread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from orchestrator.database.transactions import Reading

TRANSACTION = "transaction"
_TIME = """to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_ENVELOPE = f"""
concat(',"timestamp":"', {_TIME}, '","leader_id":', to_json(leader_id), ',"event_id":"', event_id,
       '","event_type":', to_json(event_type), ',"subject":', to_json(subject), ',"correlation_id":"', correlation_id,
       '"', ',"tenant_id":"' || tenant_id || '"', ',"operation_key":' || to_json(operation_key))"""
# A transaction is told as it was asked for: its members stand beside the envelope's, and its request_id is its key.
_INNER = """(payload - array['version', 'prev_version', 'timestamp', 'leader_id', 'event_id', 'event_type', 'subject',
             'correlation_id', 'tenant_id', 'operation_key', 'request_id'])"""
_REST = f"""
case when event_type = '{TRANSACTION}'
     then concat({_ENVELOPE}, ',"request_id":' || to_json(operation_key),
                 ',' || nullif(substr({_INNER}::text, 2), '}}'), case when {_INNER} = '{{}}' then '}}' end)
     else concat({_ENVELOPE}, ',"request_id":' || to_json(request_id), ',"data":', payload, '}}') end"""
_READ = f"""
select f.version as first, e.* from log_first f left join (
    select * from (
        select found.*, count(*) over () as found, row_number() over (order by version) as place,
               sum(octet_length(rest)) over (order by version rows unbounded preceding) as bytes
        from (
            select version, prev_version, tenant_id, event_type, subject, {_REST} as rest
            from log where version > :after and version <= :until WHICH order by version limit :limit
        ) found
    ) bounded where bytes <= :bytes_max or place = 1 order by version
) e on true"""
_OF_TENANT = "and tenant_id = :tenant_id"
_FILTERED = """
and (:any_type or event_type = any(cast(:types as text[]))
     or exists (select from unnest(cast(:families as text[])) family where starts_with(event_type, family)))
and (:any_subject or subject = any(cast(:subjects as text[]))
     or exists (select from unnest(cast(:collections as text[])) collection where starts_with(subject, collection)))"""
_TRUNCATED = """
select f.version as first, case
    when :after + 1 >= f.version then false
    when cast(:tenant_id as uuid) is null then true
    else :after < coalesce(
        (select prev_version from log where tenant_id = :tenant_id and version >= f.version order by version limit 1),
        (select version from log_tenants where tenant_id = :tenant_id), 0)
    end as truncated
from log_first f"""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events: exact names, or beginnings that end in a separator; empty means all."""

    types: frozenset[str] = frozenset()
    families: tuple[str, ...] = ()
    subjects: frozenset[str] = frozenset()
    collections: tuple[str, ...] = ()

    @property
    def takes_all(self) -> bool:
        """Whether nothing is left out."""
        return not (self.types or self.families or self.subjects or self.collections)

    def takes(self, event_type: str, subject: str) -> bool:
        """Whether an event of this type about this subject is meant."""
        if (self.types or self.families) and not (event_type in self.types or event_type.startswith(self.families)):
            return False
        some = self.subjects or self.collections
        return not some or subject in self.subjects or subject.startswith(self.collections)


ALL = Filter()


class FeedEvent(NamedTuple):
    """An event in its place. `rest` ends its JSON object, from behind `prev_version`."""

    version: int
    prev_version: int
    tenant_id: UUID | None
    event_type: str
    subject: str
    rest: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What a look at the log found: up to `scanned_to` there is nothing else. `first`: the lowest version kept."""

    events: Sequence[FeedEvent]
    scanned_to: int
    first: int


async def read_events(
    reading: Reading, after: int, until: int, *, tenant_id: UUID | None, chosen: Filter, limit: int, bytes_max: int
) -> Scan:
    """Events behind `after`, up to `until`, of one tenant if named: at most `limit`, and at most `bytes_max` of them
    beyond the first.
    """
    which = ("" if tenant_id is None else _OF_TENANT) + ("" if chosen.takes_all else _FILTERED)
    values: dict[str, object] = {"after": after, "until": until, "limit": limit, "bytes_max": bytes_max}
    if tenant_id is not None:
        values["tenant_id"] = tenant_id
    if not chosen.takes_all:
        values |= {
            "any_type": not (chosen.types or chosen.families), "types": list(chosen.types),
            "families": list(chosen.families), "any_subject": not (chosen.subjects or chosen.collections),
            "subjects": list(chosen.subjects), "collections": list(chosen.collections),
        }  # fmt: skip
    rows: Sequence[Any] = (await reading.execute(_READ.replace("WHICH", which), values)).all()
    first = rows[0][0]
    if rows[0][1] is None:
        return Scan([], until, first)
    events = [FeedEvent._make(tuple(row)[1:7]) for row in rows]
    whole = len(events) == rows[0].found < limit
    return Scan(events, until if whole else events[-1].version, first)


async def find_truncation(reading: Reading, after: int, tenant_id: UUID | None) -> tuple[int, bool]:
    """The lowest version kept, and whether events behind `after` are gone that this tenant (or any) would see."""
    row = (await reading.execute(_TRUNCATED, {"after": after, "tenant_id": tenant_id})).one()
    return row.first, row.truncated
