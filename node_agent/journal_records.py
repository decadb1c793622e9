"""The journal's lines: what is recorded, and how damage is told from truth.

A line is `<crc32 of the rest, 8 hex digits> <JSON>\\n`. CRC-32 (zlib) finds every single flipped bit and every torn
write that matters here; the newline comes last, so a line without one was being written when the power went.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError

from node_agent.protocol import Envelope, ResultReport, Wire


class Accepted(Wire):
    """A trusted task that the agent has taken over: from here on it will be reported, whatever happens."""

    kind: Literal["accepted"] = "accepted"
    envelope: Envelope


class Started(Wire):
    """Its effect may have begun. Synced before the effect."""

    kind: Literal["started"] = "started"
    task_id: UUID


class Finished(Wire):
    """Its effect is over and this is its report. Synced before the report is sent. A refused task has only this."""

    kind: Literal["finished"] = "finished"
    task_id: UUID
    report: ResultReport


class Reported(Wire):
    """The server has its report. Losing this line only repeats the report."""

    kind: Literal["reported"] = "reported"
    task_id: UUID


class NewestFence(Wire):
    """Written by compaction: the newest fence seen for a unit (`slot:<index>` or `allocation:<id>`)."""

    kind: Literal["newest_fence"] = "newest_fence"
    unit: str
    fence: int
    task_id: UUID
    completed: bool


Record = Annotated[Accepted | Started | Finished | Reported | NewestFence, Field(discriminator="kind")]
_RECORD: TypeAdapter[Accepted | Started | Finished | Reported | NewestFence] = TypeAdapter(Record)
AnyRecord = Accepted | Started | Finished | Reported | NewestFence


@dataclass
class Scan:
    """What a journal file holds: readable records in order, and what was unreadable."""

    records: list[AnyRecord] = field(default_factory=list)
    whole_bytes: int = 0
    torn_bytes: int = 0
    tail_lacks_newline: bool = False
    damaged_lines: int = 0


def encode(record: AnyRecord) -> bytes:
    """The line of `record`, newline included."""
    body = record.model_dump_json(exclude_none=True).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode(line: bytes) -> AnyRecord | None:
    """The record of a line without its newline, or None when it is damaged."""
    checksum, separator, body = line[:8], line[8:9], line[9:]
    if separator != b" " or checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _RECORD.validate_json(body)
    except ValidationError:
        return None


def scan(content: bytes) -> Scan:
    """Read a whole journal. A damaged line costs itself and nothing else; a torn last line is told apart from
    damage."""
    found = Scan()
    *lines, tail = content.split(b"\n")
    for line in lines:
        record = decode(line)
        if record is None:
            found.damaged_lines += 1
        else:
            found.records.append(record)
    found.whole_bytes = len(content) - len(tail)
    if tail:
        last = decode(tail)
        if last is None:
            found.torn_bytes = len(tail)
        else:
            found.records.append(last)
            found.tail_lacks_newline = True
    return found
