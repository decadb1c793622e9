"""The messages of the audit's stream, as text."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from orchestrator.audit.list_store import Entry
from worker.audit_stream.messages import document_of, message_id, octet_counted, syslog_message, usable_hostname

AT = datetime(2026, 3, 1, 13, 30, 0, 1, tzinfo=timezone(timedelta(hours=1)))


def row(**members: Any) -> Entry:
    """A row of the chain."""
    usual: dict[str, Any] = {
        "sequence": 7, "id": 9, "at": AT, "recorded_at": AT, "principal": {"kind": "admin", "id": "k", "role": "admin"},
        "tenant_id": uuid.UUID(int=1), "source": "192.0.2.1", "user_agent": "curl", "action": "node.cordon",
        "subject": "nodes/1", "status": 200, "code": "ok", "operation_key": "key", "request_id": "r",
        "correlation_id": None, "detail": {"é": "\u2028"}, "hash": "ab" * 32,
    }  # fmt: skip
    return Entry(**{**usual, **members})


def test_a_syslog_message() -> None:
    message = syslog_message(row(), "control-1", 8_192)
    header, _, document = message.partition(b"] ")
    assert header == b'<110>1 2026-03-01T12:30:00.000001Z control-1 berth - audit [meta sequenceId="7"'
    assert json.loads(document)["unmapped"]["detail"] == {"é": "\u2028"}
    assert message.isascii(), "no byte order mark is needed, and no line or record separator gets through"
    assert octet_counted(b"abc") == b"3 abc"


@pytest.mark.parametrize(("sequence", "shown"), [(2**31 - 1, b'"2147483647"'), (2**31, b'"1"')])
def test_the_sequence_id_of_syslog_wraps_and_that_of_the_row_does_not(sequence: int, shown: bytes) -> None:
    message = syslog_message(row(sequence=sequence), "h", 8_192)
    assert b"sequenceId=" + shown in message
    assert json.loads(message.partition(b"] ")[2])["metadata"]["sequence"] == sequence


@pytest.mark.parametrize(
    ("name", "usable"), [("control 1\n", "control1"), ("é", "-"), ("", "-"), ("a" * 300, "a" * 255)]
)
def test_hostnames(name: str, usable: str) -> None:
    assert usable_hostname(name) == usable


def test_a_row_is_shortened_until_it_fits() -> None:
    whole = document_of(row(detail={"x": "y" * 3_000}), 4_096)
    assert len(json.loads(whole)["unmapped"]["detail"]["x"]) == 3_000
    without = json.loads(document_of(row(detail={"x": "y" * 5_000}), 4_096))
    assert (without["unmapped"]["detail_omitted_bytes"], "detail" in without["unmapped"]) == (5_008, False)
    cut = document_of(row(detail={"x": "y" * 5_000}, subject="things/" + "z" * 9_000), 4_096)
    assert len(cut) <= 4_096
    assert json.loads(cut)["resources"] == [{"type": "things", "uid": "z" * 256}]


def test_ids_distinguish_histories() -> None:
    assert message_id(row()) == "audit-7-" + "ab" * 8
    assert message_id(row()) != message_id(row(hash="cd" * 32))
