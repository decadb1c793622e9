"""An event of the log, the same from the feed (docs/reference/feed.md) and from NATS (docs/reference/events.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.client.errors import UnreadableAnswer
from berth.process.json_objects import JsonMapping

TYPE_PREFIX = "berth."
TRANSACTION = "transaction"
VERSIONS_SKIPPED = "log.versions_skipped"
_ENVELOPE = frozenset(
    {
        "version", "prev_version", "timestamp", "leader_id", "event_id", "event_type", "subject", "correlation_id",
        "tenant_id", "operation_key", "request_id", "type",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One event in its place. `prev_version` is the version before it in the reader's chain; None without a chain.

    `tenant_id` is None where it is for operators only; `operation_key` and `request_id` where no client caused it.
    `is_stub`: NATS could not carry what it says (docs/reference/events.md, "Stubs"); the feed can.
    """

    version: int
    prev_version: int | None
    event_id: UUID
    event_type: str
    occurred_at: datetime
    subject: str
    correlation_id: UUID
    tenant_id: UUID | None
    operation_key: str | None
    request_id: str | None
    leader_id: str
    data: JsonMapping
    is_stub: bool = False


def event_of_feed(text: str | bytes) -> Event:
    """Parse an event of the feed or of a notification. Raises `UnreadableAnswer`."""
    try:
        content = json.loads(text)
        tenant, transaction = content.get("tenant_id"), content["event_type"] == TRANSACTION
        return Event(
            version=int(content["version"]),
            prev_version=content.get("prev_version"),
            event_id=UUID(content["event_id"]),
            event_type=content["event_type"],
            occurred_at=datetime.fromisoformat(content["timestamp"]),
            subject=content["subject"],
            correlation_id=UUID(content["correlation_id"]),
            tenant_id=None if tenant is None else UUID(tenant),
            operation_key=content.get("operation_key"),
            request_id=content.get("request_id"),
            leader_id=content["leader_id"],
            # The members of a transaction are not nested in `data`.
            data={k: v for k, v in content.items() if k not in _ENVELOPE} if transaction else content["data"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableAnswer(f"the feed sent an unreadable event: {error}", code="unreadable_answer") from error


def event_of_cloud(text: bytes, version: int, *, chained_by_tenant: bool) -> Event:
    """An event as NATS carries it, at its place in the stream. Raises `UnreadableAnswer`, for what is none or is at
    another event's place.
    """
    try:
        content = json.loads(text)
        tenant, data, kind = content.get("tenantid"), content["data"], content["type"].removeprefix(TYPE_PREFIX)
        if int(content["version"]) != version:
            raise ValueError(f"version {content['version']} at place {version}")
        return Event(
            version=version,
            # The only event whose predecessor is not the version before it: it replaces versions that a restore has lost.
            prev_version=int(content["prevversion"]) if chained_by_tenant or kind == VERSIONS_SKIPPED else version - 1,
            event_id=UUID(content["id"]),
            event_type=kind,
            occurred_at=datetime.fromisoformat(content["time"]),
            subject=content.get("subject", ""),
            correlation_id=UUID(content["correlationid"]),
            tenant_id=None if tenant is None else UUID(tenant),
            operation_key=content.get("operationkey"),
            request_id=content.get("requestid"),
            leader_id=content["leaderid"],
            data=data,
            is_stub=data.get("stub") is True and "reason" in data and len(data) == 2,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableAnswer(
            f"the message at place {version} is not the event of that version: {error}", code="unreadable_answer"
        ) from error
