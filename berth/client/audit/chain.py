"""Recomputes the chain of the audit from its entries, so that nothing that the server states of it has to be believed.

The hash of an entry is the SHA-256 over the hash of the entry before it and its canonical form in UTF-8; the first entry
follows 32 zero bytes. The canonical form is that of SQL `audit_canonical`: PostgreSQL's text form of a row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from berth.client.models import AuditEntry

START: Final = bytes(32)
"""The hash before the first entry."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_QUOTED: Final = frozenset('"\\(), \t\n\r\v\f')


class ChainBroken(Exception):
    """The chain does not hold. `sequence` is the first entry that does not, or that is missing."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"audit row {sequence}: {why}")
        self.sequence = sequence
        self.why = why


@dataclass(frozen=True)
class KnownRow:
    """A row of the chain that an earlier verification found, and its hash. Sequence 0 is the start of the chain."""

    sequence: int
    hash: bytes


@dataclass(frozen=True)
class VerifiedChain:
    """What holds: how many entries were recomputed, the first of them (None: there was none), and the newest row."""

    checked: int
    first: int | None
    head: KnownRow


class RowArchived(Exception):
    """A row that a caller knows is before the beginning of the chain: the archive has it, and the server has not."""

    def __init__(self, sequence: int, anchor: int) -> None:
        super().__init__(f"row {sequence} is in the archive, with all rows up to {anchor}")


def verify_chain(
    read: Callable[[int], Iterable[AuditEntry]],
    *,
    known: KnownRow | None = None,
    expected: KnownRow | None = None,
    anchor: KnownRow = KnownRow(0, START),
) -> VerifiedChain:
    """Recompute the chain from `known` on, or from its start. Raises `ChainBroken` at the first row that does not hold.

    `read` returns all entries after a sequence, in order. `known` and `expected` must be in the chain with their hashes, so a
    chain that was cut or rewritten does not hold, however consistent it is. `anchor` is the row that the chain continues; as
    `known` or `expected` it must have the hash that they say. Raises `RowArchived` if one of them is before it.
    """
    awaited = {row.sequence: row.hash for row in (known, expected) if row is not None}
    if awaited and 0 < min(awaited) < anchor.sequence:
        raise RowArchived(min(awaited), anchor.sequence)
    start = anchor.sequence if known is None else max(known.sequence - 1, anchor.sequence)
    if start == anchor.sequence:
        head, entries = anchor, iter(read(start))
    else:
        entries = iter(read(start - 1))
        head = KnownRow(start, _stored_hash(start, next(entries, None)))
    _require(head, awaited)
    checked = 0
    for entry in entries:
        head = _followed(head, entry)
        _require(head, awaited)
        checked += 1
    if head.sequence < max(awaited, default=0):
        raise ChainBroken(head.sequence + 1, f"it is missing; row {max(awaited)} was expected")
    return VerifiedChain(checked, start + 1 if checked else None, head)


def _stored_hash(sequence: int, entry: AuditEntry | None) -> bytes:
    """The hash of the row before the known one, which is not recomputed: the known row holds only after the right one."""
    if entry is None or entry.sequence != sequence:
        raise ChainBroken(sequence, "it is missing")
    return bytes.fromhex(entry.hash)


def _followed(head: KnownRow, entry: AuditEntry) -> KnownRow:
    sequence = head.sequence + 1
    if entry.sequence != sequence:
        raise ChainBroken(sequence, f"it is missing; the next row of the list is {entry.sequence}")
    found = entry_hash(head.hash, entry)
    if found.hex() != entry.hash:
        raise ChainBroken(sequence, "its hash is not that of the row before and its content")
    return KnownRow(sequence, found)


def _require(head: KnownRow, awaited: dict[int, bytes]) -> None:
    if awaited.get(head.sequence, head.hash) != head.hash:
        raise ChainBroken(head.sequence, f"its hash is {head.hash.hex()}, and another one was expected")


def entry_hash(before: bytes, entry: AuditEntry) -> bytes:
    """The hash that the entry must have after the entry whose hash is `before`."""
    return hashlib.sha256(before + canonical_form(entry).encode()).digest()


def canonical_form(entry: AuditEntry) -> str:
    """The text over which the entry's hash is computed."""
    members = (
        entry.sequence, _microseconds(entry.recorded_at), entry.id, _microseconds(entry.at), entry.principal.kind,
        entry.principal.id, entry.principal.role, entry.tenant_id, entry.source, entry.user_agent, entry.action,
        entry.subject, entry.status, entry.code, entry.operation_key, entry.request_id, entry.correlation_id,
        json_text(entry.detail),
    )  # fmt: skip
    return "(" + ",".join("" if member is None else _quoted(str(member)) for member in members) + ")"


def json_text(value: object) -> str:
    """A JSON value as PostgreSQL's `jsonb` writes it: keys by length and bytes, numbers without an exponent."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{json_text(key)}: {json_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False)


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _quoted(member: str) -> str:
    """A member as in PostgreSQL's text form of a row: in quotes, with quotes and backslashes doubled, where it needs them."""
    if member and _QUOTED.isdisjoint(member):
        return member
    return '"' + member.replace("\\", "\\\\").replace('"', '""') + '"'
