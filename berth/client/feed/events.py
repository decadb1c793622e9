"""An event as its readers get it, from the feed (docs/feed.md) or from NATS (docs/events.md): the same either way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.client.errors import UnreadableAnswer

TYPE_PREFIX = "berth."
TRANSACTION = "transaction"
_ENVELOPE = frozenset(
    {
        "version", "prev_version", "timestamp", "leader_id", "event_id", "event_type", "subject", "correlation_id",
        "tenant_id", "operation_key", "request_id", "type",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One event in its place. `prev_version` is the version before it in the chain of whoever reads; None without a chain.

    `tenant_id` is None where it is for operators only; `operation_key` and `request_id` where no client caused it.
    `is_stub`: NATS could not carry what it says (docs/events.md, "Stubs"); the feed can.
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
    data: Mapping[str, Any]
    is_stub: bool = False


def event_of_feed(text: str | bytes) -> Event:
    """An event as the feed or a notification tells it. Raises `UnreadableAnswer`."""
    try:
        told = json.loads(text)
        tenant, transaction = told.get("tenant_id"), told["event_type"] == TRANSACTION
        return Event(
            version=int(told["version"]),
            prev_version=told.get("prev_version"),
            event_id=UUID(told["event_id"]),
            event_type=told["event_type"],
            occurred_at=datetime.fromisoformat(told["timestamp"]),
            subject=told["subject"],
            correlation_id=UUID(told["correlation_id"]),
            tenant_id=None if tenant is None else UUID(tenant),
            operation_key=told.get("operation_key"),
            request_id=told.get("request_id"),
            leader_id=told["leader_id"],
            # What a transaction holds stands beside the rest.
            data={k: v for k, v in told.items() if k not in _ENVELOPE} if transaction else told["data"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableAnswer(f"the feed told what is no event: {error}", code="unreadable_answer") from error


def event_of_cloud(text: bytes, version: int, *, chained_by_tenant: bool) -> Event:
    """An event as NATS carries it, at its place in the stream. Raises `UnreadableAnswer`, for what is none or is at
    another event's place.
    """
    try:
        told = json.loads(text)
        tenant, data = told.get("tenantid"), told["data"]
        if int(told["version"]) != version:
            raise ValueError(f"version {told['version']} at place {version}")
        return Event(
            version=version,
            prev_version=int(told["prevversion"]) if chained_by_tenant else version - 1,
            event_id=UUID(told["id"]),
            event_type=told["type"].removeprefix(TYPE_PREFIX),
            occurred_at=datetime.fromisoformat(told["time"]),
            subject=told.get("subject", ""),
            correlation_id=UUID(told["correlationid"]),
            tenant_id=None if tenant is None else UUID(tenant),
            operation_key=told.get("operationkey"),
            request_id=told.get("requestid"),
            leader_id=told["leaderid"],
            data=data,
            is_stub=data.get("stub") is True and "reason" in data and len(data) == 2,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableAnswer(
            f"the message at place {version} is not the event of that version: {error}", code="unreadable_answer"
        ) from error
