"""SQL of the archive for the audit: which rows of the chain may leave, their lines, and their deletion up to the anchor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pydantic import ValidationError

from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.manifests import Line
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.rows import LOCK_SECONDS, Connection, Sealed, read_bounded
from berth.client.audit.chain import KnownRow, entry_hash
from berth.client.models import AuditEntry
from berth.process.crash_points import reach

DAYS_MIN = 30
"""The database refuses to delete younger rows (SQL `require_segment`)."""
_ANCHOR = "select sequence, hash from audit_anchor"
# An operator's statement that nothing is left on a node is the proof of that cleanup for as long as the allocation exists.
_DUE = """
select least(
    coalesce((select sequence from audit_chain where recorded_at < clock_timestamp() - make_interval(days => %(days)s)
              order by recorded_at desc, sequence desc limit 1), 0),
    (select sequence - 1 from audit_head)
), (
    select c.sequence from audit_chain c
    where c.action = 'allocation.force_cleanup' and exists (
        select from allocations a
        where a.id = case when c.subject ~ '^allocations/[0-9a-f-]{36}$' then substr(c.subject, 13)::uuid end)
    order by c.sequence limit 1
), (select min(sequence) from audit_streams)
"""
_LINES = """
select sequence, jsonb_build_object(
    'sequence', sequence, 'id', id, 'at', at, 'recorded_at', recorded_at,
    'principal', jsonb_build_object('kind', principal_kind, 'id', principal_id, 'role', role), 'tenant_id', tenant_id,
    'source', source, 'user_agent', user_agent, 'action', action, 'subject', subject, 'status', status, 'code', code,
    'operation_key', operation_key, 'request_id', request_id, 'correlation_id', correlation_id, 'detail', detail,
    'hash', encode(hash, 'hex'))::text
from audit_chain where sequence > %(after)s and sequence <= %(last)s order by sequence limit %(limit)s
"""
_HASH = "select encode(hash, 'hex') from audit_chain where sequence = %s"
_RECORD = """
insert into archive_segments (sequence, kind, manifest_sha256, destination, name, deleted, audit_first, audit_last, audit_hash)
values (%(sequence)s, 'audit', %(manifest)s, %(destination)s, %(name)s, %(last)s - %(first)s + 1, %(first)s, %(last)s,
        decode(%(hash)s, 'hex'))
"""
_FORGET = "select audit_forget(%s)"
_AUDIT = """
insert into audit (principal_kind, principal_id, action, subject, detail)
values ('system', 'berth archive run', 'audit.archive', 'archive/' || %(sequence)s,
        jsonb_build_object('manifest_sha256', %(manifest)s::text, 'first', %(first)s::bigint, 'last', %(last)s::bigint,
                           'hash', %(hash)s::text))
"""


@dataclass(frozen=True, slots=True)
class DueRows:
    """The rows behind `anchor` up to `last` may leave. `held_at`: a row that is due and stays, as proof of a cleanup.

    `unsent_from`: the first row that is due and stays, because a stream has not sent it.
    """

    anchor: KnownRow
    last: int
    held_at: int | None
    unsent_from: int | None


def find_rows(connection: Connection, days: int) -> DueRows:
    """Which rows were recorded more than `days` days ago, prove nothing that the database still has, and were sent by every
    stream. The newest stays.
    """
    anchor = read_anchor(connection)
    row = connection.execute(_DUE, {"days": days}).fetchone()
    assert row is not None, "an aggregate without a table has one row"
    due, proof, sent = row
    last = due if proof is None else min(due, proof - 1)
    held_at = None if last == due else int(proof)
    unsent_from = None if sent is None or sent >= last else int(sent) + 1
    return DueRows(anchor, int(last) if unsent_from is None else int(sent), held_at, unsent_from)


def read_anchor(connection: Connection) -> KnownRow:
    """The newest row that is in the archive alone, which the chain continues."""
    row = connection.execute(_ANCHOR).fetchone()
    assert row is not None, "an upgraded database has one anchor"
    return KnownRow(int(row[0]), bytes(row[1]))


def read_audit_lines(connection: Connection, due: DueRows, limit: int, bytes_max: int) -> list[Line]:
    """The first of these rows, up to that many rows and bytes, at least one."""
    values = {"after": due.anchor.sequence, "last": due.last, "limit": limit}
    return read_bounded(connection, _LINES, values, bytes_max, rows_at_once=500)


def follow_chain(before: KnownRow, lines: Sequence[Line], where: str) -> KnownRow:
    """Recompute the hashes of rows that follow a row; return the last one. Raises `ArchiveProblem` at the first that differs."""
    for line in lines:
        entry = _entry(line, where)
        expected = KnownRow(before.sequence + 1, entry_hash(before.hash, entry))
        if (entry.sequence, entry.hash) != (expected.sequence, expected.hash.hex()):
            raise ArchiveProblem(
                "audit_broken",
                f"audit row {expected.sequence} in {where} does not continue the chain: its hash is not that of the row before"
                " and its content, or it is missing",
            )
        before = expected
    return before


def _entry(line: Line, where: str) -> AuditEntry:
    try:
        # A float would lose the trailing zeros that the hash covers.
        return AuditEntry.model_validate(json.loads(line.text, parse_float=Decimal))
    except (ValueError, ValidationError) as error:
        raise ArchiveProblem("archive_damaged", f"a line of {where} is no row of the audit: {error}") from error


def is_of_database(connection: Connection, sealed: Sealed) -> bool:
    """Whether the rows of a sealed segment are the next ones of this database's chain."""
    segment, anchor = sealed.segment, read_anchor(connection)
    row = connection.execute(_HASH, (int(segment.last),)).fetchone()
    beginning = (int(segment.first), segment.hash_before)
    return beginning == (anchor.sequence + 1, anchor.hash.hex()) and row is not None and row[0] == segment.hash


def delete_sealed_rows(connection: Connection, sealed: Sealed) -> int:
    """Delete the rows of the segment, in one transaction that records it; return how many. Raises `psycopg.Error`."""
    segment = sealed.segment
    values: dict[str, object] = {
        "sequence": sealed.sequence, "manifest": sealed.manifest_sha256, "destination": sealed.destination,
        "name": segment.name,
        "first": int(segment.first), "last": int(segment.last), "hash": segment.hash,
    }  # fmt: skip
    with connection.transaction():
        connection.execute("select set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS}s",))
        connection.execute(_RECORD, values)
        row = connection.execute(_FORGET, (sealed.sequence,)).fetchone()
        assert row is not None, "a function returns one row"
        connection.execute(_AUDIT, values)
        reach(CrashPoint.BEFORE_DELETE_COMMIT)
    reach(CrashPoint.AFTER_DELETE_COMMIT)
    return int(row[0])
