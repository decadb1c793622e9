"""Events of the log as the feed returns them, bounded in number and bytes. PostgreSQL writes the JSON, which is not parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Integer, Select, Text, bindparam, func, literal_column, select, text, true

from orchestrator.database.transactions import Reading
from orchestrator.log.events import VERSIONS_SKIPPED
from orchestrator.log.tables import log, log_first

TRANSACTION = "transaction"
# The JSON object's members after `prev_version`, to its closing brace. A transaction's members are beside the envelope's, as the
# client sent them, and its request_id is its key.
_REST = """
concat(',"timestamp":"', rfc3339(occurred_at),
       '","leader_id":', to_json(leader_id), ',"event_id":"', event_id, '","event_type":', to_json(event_type),
       ',"subject":', to_json(subject), ',"correlation_id":"', correlation_id, '"', ',"tenant_id":"' || tenant_id || '"',
       ',"operation_key":' || to_json(operation_key),
       case when event_type = 'transaction'
            then concat(',"request_id":' || to_json(operation_key),
                        coalesce(',' || nullif(substr(
                            (payload - array['version', 'prev_version', 'timestamp', 'leader_id', 'event_id', 'event_type',
                                             'subject', 'correlation_id', 'tenant_id', 'operation_key', 'request_id'])::text,
                            2), '}'), '}'))
            else concat(',"request_id":' || to_json(request_id), ',"data":', payload, '}') end)"""
_TYPES_MATCH = """
(:any_type or event_type = any(cast(:types as text[]))
 or exists (select from unnest(cast(:families as text[])) family where starts_with(event_type, family)))"""
_SUBJECTS_MATCH = """
(:any_subject or subject = any(cast(:subjects as text[]))
 or exists (select from unnest(cast(:collections as text[])) collection where starts_with(subject, collection)))"""
_EVENT = (log.c.version, log.c.prev_version, log.c.tenant_id, log.c.event_type, log.c.subject)


def _reading_of(*, by_tenant: bool, filtered: bool) -> Select[Any]:
    """Build the statement: events in the window, cut after `limit` rows or `bytes_max` bytes, but at least one."""
    scan = select(*_EVENT, literal_column(_REST, Text).label("rest")).where(
        log.c.version > bindparam("after"), log.c.version <= bindparam("until")
    )
    if by_tenant:
        scan = scan.where(log.c.tenant_id == bindparam("tenant_id"))
    if filtered:
        scan = scan.where(text(_TYPES_MATCH), text(_SUBJECTS_MATCH))
    found = scan.order_by(log.c.version).limit(bindparam("limit", type_=Integer)).subquery("found")
    bounded = select(
        found,
        func.count().over().label("found"),
        func.row_number().over(order_by=found.c.version).label("place"),
        func.sum(func.octet_length(found.c.rest)).over(order_by=found.c.version, rows=(None, 0)).label("bytes"),
    ).subquery("bounded")
    fitting = (
        select(bounded)
        .where((bounded.c.bytes <= bindparam("bytes_max")) | (bounded.c.place == 1))
        .order_by(bounded.c.version)
        .subquery("e")
    )
    return select(log_first.c.version.label("first"), fitting).select_from(log_first.outerjoin(fitting, true()))


_READ = {
    (by_tenant, filtered): _reading_of(by_tenant=by_tenant, filtered=filtered)
    for by_tenant in (False, True)
    for filtered in (False, True)
}
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
    """Selects events by exact names, or by prefixes that end in a separator; empty selects all."""

    types: frozenset[str] = frozenset()
    families: tuple[str, ...] = ()
    subjects: frozenset[str] = frozenset()
    collections: tuple[str, ...] = ()

    @property
    def takes_all(self) -> bool:
        """Whether it selects every event."""
        return not (self.types or self.families or self.subjects or self.collections)

    def takes(self, event_type: str, subject: str) -> bool:
        """Return whether an event of this type and subject is selected."""
        if (self.types or self.families) and not (event_type in self.types or event_type.startswith(self.families)):
            return False
        some = self.subjects or self.collections
        return not some or subject in self.subjects or subject.startswith(self.collections)


ALL = Filter()


class FeedEvent(NamedTuple):
    """An event with its version. `rest` is its JSON object after `prev_version`."""

    version: int
    prev_version: int
    tenant_id: UUID | None
    event_type: str
    subject: str
    rest: str

    @property
    def before(self) -> int:
        """The version before it in the whole log."""
        return self.prev_version if self.event_type == VERSIONS_SKIPPED else self.version - 1


@dataclass(frozen=True, slots=True)
class Scan:
    """The selected events up to `scanned_to`. `first`: the lowest version kept."""

    events: Sequence[FeedEvent]
    scanned_to: int
    first: int


async def read_events(
    reading: Reading, after: int, until: int, *, tenant_id: UUID | None, chosen: Filter, limit: int, bytes_max: int
) -> Scan:
    """Return events after `after` up to `until`, of one tenant if named: at most `limit`, at most `bytes_max` after the first."""
    values: dict[str, object] = {"after": after, "until": until, "limit": limit, "bytes_max": bytes_max}
    if tenant_id is not None:
        values["tenant_id"] = tenant_id
    if not chosen.takes_all:
        values |= {
            "any_type": not (chosen.types or chosen.families), "types": list(chosen.types),
            "families": list(chosen.families), "any_subject": not (chosen.subjects or chosen.collections),
            "subjects": list(chosen.subjects), "collections": list(chosen.collections),
        }  # fmt: skip
    rows: Sequence[Any] = (await reading.execute(_READ[tenant_id is not None, not chosen.takes_all], values)).all()
    first = rows[0][0]
    if rows[0][1] is None:
        return Scan([], until, first)
    events = [FeedEvent._make(tuple(row)[1:7]) for row in rows]
    complete = len(events) == rows[0].found < limit
    return Scan(events, until if complete else events[-1].version, first)


async def find_truncation(reading: Reading, after: int, tenant_id: UUID | None) -> tuple[int, bool]:
    """Return the lowest version kept, and whether events after `after` of this tenant (None: any) were dropped."""
    row = (await reading.execute(_TRUNCATED, {"after": after, "tenant_id": tenant_id})).one()
    return row.first, row.truncated
