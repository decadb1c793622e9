"""The messages of the audit's stream: OCSF objects as `berth audit export` prints them, and their syslog frames. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC
from typing import Any, Final

from berth.client.audit.ocsf import ocsf_event
from berth.client.models import AuditEntry
from orchestrator.audit.list_store import Entry

LOG_AUDIT, INFORMATIONAL = 13, 6
"""Facility and severity of RFC 5424."""
PRIORITY: Final = LOG_AUDIT * 8 + INFORMATIONAL
SEQUENCE_ID_MAX: Final = 2**31 - 1
HOSTNAME_MAX: Final = 255
TEXT_MAX: Final = 256
"""Longest text of a row that is too large even without its `detail`."""


def document_of(row: Entry, bytes_max: int, *, ascii_only: bool = False) -> bytes:
    """The row as one OCSF object. If it has more than `bytes_max` bytes, `unmapped.detail` is replaced by its size.

    The chain has the whole row: `berth audit export --after <sequence - 1>`.
    """
    event = ocsf_event(AuditEntry.model_validate(asdict(row)))
    document = _encoded(event, ascii_only)
    if len(document) <= bytes_max:
        return document
    unmapped = event["unmapped"]
    unmapped["detail_omitted_bytes"] = len(_encoded(unmapped.pop("detail"), ascii_only))
    document = _encoded(event, ascii_only)
    return document if len(document) <= bytes_max else _encoded(_cut(event), ascii_only)


def message_id(row: Entry) -> str:
    """The id for de-duplication. The hash distinguishes rows with one sequence in two histories (a restored database)."""
    return f"audit-{row.sequence}-{row.hash[:16]}"


def syslog_message(row: Entry, hostname: str, bytes_max: int) -> bytes:
    """The row as a message of RFC 5424; its object is in ASCII, which needs no byte order mark. `sequenceId` wraps (7.3.1)."""
    at = row.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    sequence_id = (row.sequence - 1) % SEQUENCE_ID_MAX + 1
    header = f'<{PRIORITY}>1 {at} {hostname} berth - audit [meta sequenceId="{sequence_id}"] '.encode("ascii")
    return header + document_of(row, bytes_max - len(header), ascii_only=True)


def octet_counted(message: bytes) -> bytes:
    """The frame of RFC 5425 and RFC 6587."""
    return b"%d %b" % (len(message), message)


def usable_hostname(name: str) -> str:
    """The name as RFC 5424 allows it: printable ASCII without spaces; `-` if nothing remains."""
    return "".join(sign for sign in name if "!" <= sign <= "~")[:HOSTNAME_MAX] or "-"


def _encoded(value: Any, ascii_only: bool) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only).encode()


def _cut(value: Any) -> Any:
    """The value with each text at most `TEXT_MAX` characters long."""
    if isinstance(value, dict):
        return {name: _cut(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_cut(member) for member in value]
    return value[:TEXT_MAX] if isinstance(value, str) else value
