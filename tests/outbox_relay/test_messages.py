"""An event's form on NATS: CloudEvents 1.0 by the SDK's own judgement, subjects and frames that NATS can parse."""

from __future__ import annotations

import re

import psycopg
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import args_row

from orchestrator.tracing import traceparent
from outbox_relay.messages import SELECT_EVENTS, SELECT_STUB, Event, Fence, Subjects, frames, is_publishable
from tests.outbox_relay.relays import leave_events, log_rows

TOKEN = re.compile(rb"[^\s.*>]+(\.[^\s.*>]+)*")


def read(database: psycopg.Connection, query: bytes, **parameters: object) -> list[Event]:
    """Events as the relay reads them."""
    database.execute("set timezone = 'UTC'")
    return database.cursor(binary=True, row_factory=args_row(Event)).execute(query, parameters).fetchall()


def test_documents_are_cloudevents(database: psycopg.Connection) -> None:
    leave_events(database, [{"text": 'quo"te\\ \u0001 é \U0001f600'}, None, [1.5, {"x": None}], "plain"])
    database.execute("update outbox set subject = '', request_id = '' where id = 4")
    database.execute("select log_advance(10)")
    events = read(database, SELECT_EVENTS, after=0, limit=10)
    rows = log_rows(database)
    assert len(events) == len(rows) == 4
    for event, row in zip(events, rows, strict=True):
        read_back = JSONFormat().read(CloudEvent, event.document)
        assert read_back.get_id() == str(row["event_id"])
        assert read_back.get_source() == "/berth/log"
        assert read_back.get_type() == f"berth.{row['event_type']}"
        assert read_back.get_specversion() == "1.0"
        assert read_back.get_subject() == (row["subject"] or None)
        assert read_back.get_time() == row["occurred_at"]
        assert read_back.get_datacontenttype() == "application/json"
        assert read_back.get_data() == row["payload"]
        extensions = {
            "version": str(row["version"]), "prevversion": str(row["prev_version"]),
            "correlationid": str(row["correlation_id"]), "traceparent": traceparent(row["correlation_id"]),
            "leaderid": row["leader_id"],
            "tenantid": str(row["tenant_id"]) if row["tenant_id"] else None,
            "operationkey": row["operation_key"], "requestid": row["request_id"] or None,
        }  # fmt: skip
        present = {name: value for name, value in extensions.items() if value is not None}
        assert {name: read_back.get_extension(name) for name in extensions if name in present} == present
        attributes = read_back.get_attributes()
        assert set(attributes) - set(present) == {
            "id", "source", "type", "specversion", "time", "datacontenttype", *(["subject"] if row["subject"] else []),
        }  # fmt: skip
        # The SDK judges again, writing: every extension's name and type.
        assert JSONFormat().write(CloudEvent(attributes, read_back.get_data()))


def test_stub_is_a_cloudevent_and_small(database: psycopg.Connection) -> None:
    leave_events(database, [{"text": "x" * 200_000}])
    database.execute("update outbox set subject = repeat('s', 200), operation_key = repeat('k', 255)")
    database.execute("select log_advance(10)")
    [stub] = read(database, SELECT_STUB, version=1, reason="too_large")
    assert len(stub.document) < 1_000
    read_back = JSONFormat().read(CloudEvent, stub.document)
    assert read_back.get_data() == {"stub": True, "reason": "too_large"}
    assert read_back.get_id() == str(log_rows(database)[0]["event_id"])


@given(st.text(max_size=30))
def test_no_event_type_breaks_a_subject(event_type: str) -> None:
    subject = Subjects().of(None, event_type)
    assert TOKEN.fullmatch(subject.encode())
    assert subject.startswith("berth.events.operator.")
    assert (subject == f"berth.events.operator.{event_type}") == is_publishable(event_type)


def parse(stream: bytes) -> list[tuple[list[bytes], dict[bytes, bytes], bytes]]:
    """What a NATS server reads: arguments, headers and payload of each HPUB."""
    found = []
    while stream:
        line, stream = stream.split(b"\r\n", 1)
        verb, *arguments = line.split(b" ")
        assert verb == b"HPUB"
        header_bytes, total_bytes = int(arguments[-2]), int(arguments[-1])
        header, payload = stream[:header_bytes], stream[header_bytes:total_bytes]
        assert stream[total_bytes : total_bytes + 2] == b"\r\n"
        assert header.startswith(b"NATS/1.0\r\n")
        assert header.endswith(b"\r\n\r\n")
        headers = dict(field.split(b":", 1) for field in header.split(b"\r\n")[1:-2])
        found.append((arguments[:-2], headers, payload))
        stream = stream[total_bytes + 2 :]
    return found


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=8), st.integers(0, 2**63 - 10))
def test_frames_are_one_fenced_batch(documents: list[bytes], last_version: int) -> None:
    events = [
        Event(last_version + number, "test.happened", None, f"id-{number}", 0.0, document)
        for number, document in enumerate(documents, 1)
    ]
    messages = parse(frames(events, "b7", Fence(last_version, "_INBOX.1"), Subjects()))
    assert [payload for _, _, payload in messages] == documents
    assert [arguments[1:] for arguments, _, _ in messages] == [*[[]] * (len(events) - 1), [b"_INBOX.1"]]
    for number, (_, headers, _) in enumerate(messages, 1):
        assert headers[b"Nats-Msg-Id"] == f"id-{number}".encode()
        assert (b"Nats-Expected-Last-Sequence" in headers) == (number == 1)
        assert (b"Nats-Batch-Commit" in headers) == (number == len(events) > 1)
        assert headers.get(b"Nats-Batch-Sequence") == (str(number).encode() if len(events) > 1 else None)
    assert messages[0][1][b"Nats-Expected-Last-Sequence"] == str(last_version).encode()
