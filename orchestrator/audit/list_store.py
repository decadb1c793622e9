"""Lists of the chain of the audit: one index leads, and a page reads a bounded number of its rows.

Each filter alone has an index that yields its rows in the order of the chain. With several filters, one index leads and the
others are evaluated on its rows, at most `EXAMINED_MAX` of them, so that a page costs the same however rare its rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, func, literal, literal_column, select, tuple_

from berth.process.json_objects import JsonObject
from orchestrator.audit.refusals import AuditTruncated
from orchestrator.audit.tables import audit_chain
from orchestrator.database.transactions import Reading

EXAMINED_MAX: Final = 10_000
"""Rows of the leading index that a page reads at most."""
_SEQUENCE_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """An audited action: principal, object, outcome and request; `hash` is that of the chain up to this row, in hex."""

    sequence: int
    id: int
    at: datetime
    recorded_at: datetime
    principal: dict[str, str | None]
    tenant_id: UUID | None
    source: str | None
    user_agent: str | None
    action: str
    subject: str
    status: int | None
    code: str
    operation_key: str | None
    request_id: str | None
    correlation_id: UUID | None
    detail: JsonObject
    hash: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows: all that match every member that is not None. `since` and `until` compare with `recorded_at`."""

    subject: str | None = None
    principal: str | None = None
    tenant_id: UUID | None = None
    action: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Examined:
    """What a page found. `examined_to`: if it ended at its bound, the sequence after which the next page begins."""

    entries: list[Entry]
    examined_to: int | None


async def list_entries(reading: Reading, matching: Filter, *, after: int, limit: int) -> Examined:
    """Up to `limit` rows of the chain after this sequence, in its order, among the next `EXAMINED_MAX` of the leading index."""
    await reading.execute(_ONE_INDEX)
    first, last = await _range(reading, matching)
    leading, others = _leading(matching)
    candidates = _candidates(leading, max(after, first - 1), last)
    rows = await reading.execute(_page(candidates, leading, others, limit))
    entries = [Entry(**row._mapping) for row in rows]
    if not others or len(entries) == limit:
        return Examined(entries, None)
    examined = await reading.execute(candidates.with_only_columns(_C.sequence).offset(EXAMINED_MAX - 1).limit(1))
    return Examined(entries, examined.scalar())


_ANCHOR = "select sequence, encode(hash, 'hex') as hash from audit_anchor where sequence > :after"


async def require_kept(reading: Reading, after: int) -> None:
    """Raise `AuditTruncated` if rows after this sequence have left the database. In the transaction that reads the rows."""
    anchor = (await reading.execute(_ANCHOR, {"after": after})).mappings().first()
    if anchor is not None:
        sequence = int(anchor["sequence"])
        raise AuditTruncated(
            f"rows after {after} are in the archive; the audit begins with row {sequence + 1}; list without `after` and `cursor`,"
            f" or with after={sequence}",
            first_sequence=sequence + 1,
            hash_before=anchor["hash"],
        )


_C = audit_chain.c

# The planner knows neither how rows of an index are spread over the chain nor, in a generic plan, how many there are: it would
# read the whole table where it expects a full page early. Without these ways one index remains that has the order of the page.
_ONE_INDEX = """
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true)
"""
# `recorded_at` never decreases with the sequence, so a range of time is a range of sequences.
_FIRST = "select sequence from audit_chain where recorded_at >= :since order by recorded_at, sequence limit 1"
_LAST = "select sequence from audit_chain where recorded_at < :until order by recorded_at desc, sequence desc limit 1"


async def _range(reading: Reading, matching: Filter) -> tuple[int, int]:
    """First and last sequence of the range of time; the last is less than the first if it has no rows."""
    first, last = 1, _SEQUENCE_MAX
    if matching.since is not None:
        first = (await reading.execute(_FIRST, {"since": matching.since})).scalar() or _SEQUENCE_MAX
    if matching.until is not None:
        last = (await reading.execute(_LAST, {"until": matching.until})).scalar() or 0
    return first, last


@dataclass(frozen=True, slots=True)
class _Leading:
    """The index that leads: the one on the column and the sequence, at this value; without a column, that on the sequence."""

    column: str | None = None
    value: object = None


_Conditions = dict[str, str | UUID]
"""The value that a column must have."""


def _leading(matching: Filter) -> tuple[_Leading, _Conditions]:
    """The index with the fewest rows as a rule, and the values of the other columns."""
    wanted = {
        "subject": matching.subject, "principal_id": matching.principal, "code": matching.outcome,
        "tenant_id": matching.tenant_id, "action": matching.action,
    }  # fmt: skip
    others = {column: value for column, value in wanted.items() if value is not None}
    for column in others:
        # The index `audit_refusals` has no rows with `ok`.
        if (column, matching.outcome) != ("code", "ok"):
            return _Leading(column, others.pop(column)), others
    return _Leading(), others


def _candidates(leading: _Leading, after: int, last: int) -> Select[Any]:
    """The rows of the leading index in this range, in order.

    Column and sequence are compared as one value, as the index orders them: an equality of the column would let the planner
    take any index on the sequence and filter.
    """
    rows = select(audit_chain)
    if leading.column is None:
        return rows.where(_C.sequence > after, _C.sequence <= last).order_by(_C.sequence)
    column = _C[leading.column]
    value = literal(leading.value, column.type)
    place = tuple_(column, _C.sequence)
    rows = rows.where(
        place > tuple_(value, literal(after, BigInteger)), place <= tuple_(value, literal(last, BigInteger))
    )
    if leading.column == "code":
        # The predicate of the partial index; the planner does not derive it from a parameter.
        rows = rows.where(column != literal_column("'ok'"))
    return rows.order_by(column, _C.sequence)


def _page(candidates: Select[Any], leading: _Leading, others: _Conditions, limit: int) -> Select[Any]:
    rows = candidates.limit(EXAMINED_MAX if others else limit).subquery()
    matching = [rows.c[column] == value for column, value in others.items()]
    order = ["sequence"] if leading.column is None else [leading.column, "sequence"]
    return select(*entry_members(rows)).where(*matching).order_by(*(rows.c[column] for column in order)).limit(limit)


def entry_members(rows: FromClause) -> list[ColumnElement[Any]]:
    """The members of an `Entry`."""
    c = rows.c
    principal = func.jsonb_build_object("kind", c.principal_kind, "id", c.principal_id, "role", c.role)
    return [
        c.sequence, c.id, c.at, c.recorded_at, principal.label("principal"), c.tenant_id, c.source, c.user_agent, c.action,
        c.subject, c.status, c.code, c.operation_key, c.request_id, c.correlation_id, c.detail,
        func.encode(c.hash, "hex").label("hash"),
    ]  # fmt: skip
