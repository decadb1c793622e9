"""What an event looks like on NATS: subject, headers, CloudEvents document. `docs/reference/events.md` says the same in prose.

Documents are CloudEvents 1.0 in structured JSON (https://github.com/cloudevents/spec, JSON event format). Postgres
builds them from the log's row in one expression: it escapes every string, and the relay passes the bytes on unread.
Versions are strings because a CloudEvents integer has 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from psycopg.sql import SQL, Composable, Composed

SUBJECT_PREFIX = "berth.events"
STREAM_SUBJECTS = (f"{SUBJECT_PREFIX}.>",)
NO_TENANT = "operator"
# The last token of the subject of a stub whose event type no subject can carry.
UNPUBLISHABLE = "unpublishable"
EVENT_TYPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
CONTENT_TYPE = "application/cloudevents+json"
SUBJECTS_REMEMBERED_MAX = 20_000


class Event(NamedTuple):
    """A row of the log, ready to be published."""

    version: int
    event_type: str
    tenant_id: str | None
    event_id: str
    occurred_seconds: float
    document: bytes


class Fence(NamedTuple):
    """Where a publish belongs: it is refused unless the stream ends at `last_version`; the answer goes to `reply`."""

    last_version: int
    reply: str


def _document(data: Composable, bound: SQL) -> Composed:
    """SQL for the document of a log row whose data is the expression `data`; `bound` wraps the free texts."""
    subject, operation_key, request_id = (
        bound.format(SQL(text))
        for text in ("nullif(subject, '')", "nullif(operation_key, '')", "nullif(request_id, '')")
    )
    attributes = SQL(", ").join([
        SQL("""'{"specversion":"1.0","id":"', event_id, '","source":"/berth/log","type":'"""),
        SQL("""to_json('berth.' || event_type), ',"time":', to_json(occurred_at)"""),
        SQL("""',"datacontenttype":"application/json","version":"', version, '","prevversion":"', prev_version"""),
        SQL("""'","correlationid":"', correlation_id, '","traceparent":"00-', replace(correlation_id::text, '-', '')"""),
        SQL("""'-', right(replace(correlation_id::text, '-', ''), 16), '-01","leaderid":', to_json(leader_id)"""),
        SQL("""',"subject":' || to_json({})""").format(subject),
        SQL("""',"tenantid":"' || tenant_id || '"'"""),
        SQL("""',"operationkey":' || to_json({})""").format(operation_key),
        SQL("""',"requestid":' || to_json({})""").format(request_id),
        SQL("""',"data":'"""), data, SQL("'}'"),
    ])  # fmt: skip
    # concat skips nulls: an attribute without a value is absent, as the specification wants.
    return SQL("convert_to(concat({}), 'UTF8')").format(attributes)


def _select(document: Composed, rows: SQL) -> bytes:
    return (
        SQL(
            "select version, event_type, tenant_id::text, event_id::text, date_part('epoch', occurred_at), {} from log where {}"
        )
        .format(document, rows)
        .as_bytes()
    )


SELECT_EVENTS = _select(
    _document(SQL("payload"), SQL("{}")), SQL("version > %(after)s order by version limit %(limit)s")
)
SELECT_STUB = _select(
    _document(SQL("json_build_object('stub', true, 'reason', %(reason)s::text)"), SQL("left({}, 64)")),
    SQL("version = %(version)s"),
)


def is_publishable(event_type: str) -> bool:
    """Whether `event_type` can end a NATS subject: tokens of letters, digits, `_` and `-`, joined by dots."""
    return EVENT_TYPE.fullmatch(event_type) is not None


class Subjects:
    """Subjects of tenants' and operators' events, remembered because few of them carry nearly everything."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str], str] = {}

    def of(self, tenant_id: str | None, event_type: str) -> str:
        """`berth.events.<tenant or "operator">.<event type>`."""
        key = (tenant_id, event_type)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= SUBJECTS_REMEMBERED_MAX:
                self._known.clear()
            last = event_type if is_publishable(event_type) else UNPUBLISHABLE
            found = self._known[key] = f"{SUBJECT_PREFIX}.{tenant_id or NO_TENANT}.{last}"
        return found


def frames(events: Sequence[Event], batch_id: str, fence: Fence, subjects: Subjects) -> bytes:
    """The bytes that publish `events` as one atomic batch, in the NATS client protocol (HPUB; ADR-50 for the headers).

    One event goes as a plain publish. Only the last message asks for an answer: it commits the batch.
    """
    parts: list[bytes] = []
    last = len(events)
    for number, event in enumerate(events, 1):
        header = f"NATS/1.0\r\nNats-Msg-Id:{event.event_id}\r\ncontent-type:{CONTENT_TYPE}\r\n"
        if last > 1:
            header += f"Nats-Batch-Id:{batch_id}\r\nNats-Batch-Sequence:{number}\r\n"
        if number == 1:
            header += f"Nats-Expected-Last-Sequence:{fence.last_version}\r\n"
        reply = ""
        if number == last:
            reply = fence.reply + " "
            if last > 1:
                header += "Nats-Batch-Commit:1\r\n"
        header += "\r\n"
        document = event.document
        subject = subjects.of(event.tenant_id, event.event_type)
        # The header is ASCII, so its characters are its bytes.
        parts.append(f"HPUB {subject} {reply}{len(header)} {len(header) + len(document)}\r\n{header}".encode("ascii"))
        parts.append(document)
        parts.append(b"\r\n")
    return b"".join(parts)
