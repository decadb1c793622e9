"""The journal's records and their checksummed form.

SQLite pages have no checksum, so every row has one: CRC-32 (zlib) over its position and content, which detects every
single flipped bit. A sealed row starts with a mark, so that intact rows can be found in a damaged database file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError

from node_agent.protocol import Envelope, ResultReport
from node_agent.wiping.devices import DeviceWipe
from node_agent.wire.fields import Closed


class Accepted(Closed):
    """The agent has accepted a trusted task: it will report a result."""

    kind: Literal["accepted"] = "accepted"
    envelope: Envelope


class Started(Closed):
    """The task's effect may have begun. Synced before the effect."""

    kind: Literal["started"] = "started"
    task_id: UUID


class Wiped(Closed):
    """Releases of the allocation have proven these devices wiped. Synced before what shows it is removed."""

    kind: Literal["wiped"] = "wiped"
    allocation_id: UUID
    devices: list[DeviceWipe]


class Finished(Closed):
    """The task's effect has ended with this report. Synced before the report is sent. A refused task has only this."""

    kind: Literal["finished"] = "finished"
    task_id: UUID
    report: ResultReport


class Reported(Closed):
    """The server has the report. Losing this record only repeats the report."""

    kind: Literal["reported"] = "reported"
    task_id: UUID


class NewestFence(Closed):
    """Written by compaction: the newest fence seen for a unit (`slot:<index>` or `allocation:<id>`)."""

    kind: Literal["newest_fence"] = "newest_fence"
    unit: str
    fence: int
    task_id: UUID
    completed: bool


Record = Annotated[Accepted | Started | Wiped | Finished | Reported | NewestFence, Field(discriminator="kind")]
_RECORD: TypeAdapter[Accepted | Started | Wiped | Finished | Reported | NewestFence] = TypeAdapter(Record)
AnyRecord = Accepted | Started | Wiped | Finished | Reported | NewestFence


_HEADER = struct.Struct(">4sIQQI")
_MARK = b"\xffJR\x01"  # 0xff occurs in no UTF-8 text, so no record contains a mark


@dataclass(frozen=True)
class Row:
    """A record with its place: `first` is the position at which the latest compaction began, as far as this row knows."""

    position: int
    first: int
    record: AnyRecord


def seal(row: Row) -> bytes:
    """Encode a row so that it can be recognised and verified without its database: header, CRC-32, JSON."""
    body = row.record.model_dump_json(exclude_none=True).encode()
    unchecked = _HEADER.pack(_MARK, 0, row.position, row.first, len(body)) + body
    return _HEADER.pack(_MARK, zlib.crc32(unchecked), row.position, row.first, len(body)) + body


def unseal(content: bytes) -> Row | None:
    """Decode a row at the beginning of `content`, or return None if it is damaged."""
    if len(content) < _HEADER.size:
        return None
    mark, checksum, position, first, length = _HEADER.unpack_from(content)
    end = _HEADER.size + length
    body = content[_HEADER.size : end]
    unchecked = _HEADER.pack(mark, 0, position, first, length) + body
    if mark != _MARK or len(body) != length or zlib.crc32(unchecked) != checksum:
        return None
    try:
        return Row(position, first, _RECORD.validate_json(body))
    except ValidationError:
        return None


def find_rows(content: bytes) -> Iterator[Row]:
    """Yield every intact row in the raw bytes of a database file or page."""
    at = content.find(_MARK)
    while at >= 0:
        row = unseal(content[at:])
        if row is not None:
            yield row
        at = content.find(_MARK, at + 1)
