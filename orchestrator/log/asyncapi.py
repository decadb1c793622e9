"""`GET /asyncapi.json`: an AsyncAPI 3 document of the events on NATS and WebSockets, generated from the table of event types.

https://www.asyncapi.com/docs/reference/specification/v3.0.0; messages are CloudEvents 1.0 (docs/reference/events.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.log.event_types import EVENT_KINDS, ID, TEXT, TIME, EventKind, Visibility
from orchestrator.log.events import EventType

router = APIRouter()

TENANT_ADDRESS = "berth.events.{tenant_id}.{event_type}"
OPERATOR_ADDRESS = "berth.events.operator.{event_type}"
_VERSION = {"type": "string", "pattern": "^[0-9]+$", "description": "a position in the log (64 bits), as text"}
_ATTRIBUTES: dict[str, Any] = {
    "specversion": {"const": "1.0"}, "id": ID, "source": {"const": "/berth/log"}, "type": TEXT, "subject": TEXT,
    "time": TIME, "datacontenttype": {"const": "application/json"}, "version": _VERSION, "prevversion": _VERSION,
    "correlationid": ID, "traceparent": TEXT, "tenantid": ID, "operationkey": TEXT, "requestid": TEXT, "leaderid": TEXT,
}  # fmt: skip
_OPTIONAL = frozenset({"tenantid", "operationkey", "requestid"})
_ALSO_OPERATOR = frozenset({EventType.OPERATION_REFUSED, EventType.OPERATION_COMMITTED})
"""Emitted to the tenant for its writes, and to operators for theirs."""


_SOCKET_NAME: Final = "notifications"
_SOCKET_ADDRESS: Final = "/api/v1/notifications"
_SOCKET_VERSION: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_TYPES: Final[dict[str, Any]] = {"enum": sorted({*(event.value for event in EventType), "log.version_lost"})}
_SOCKET_MESSAGES: Final[dict[str, tuple[str, dict[str, Any], frozenset[str]]]] = {
    "begin": (
        "The first message: events begin after this version.",
        {"after": _SOCKET_VERSION, "leader_id": TEXT, "subscription": TEXT},
        frozenset({"subscription"}),
    ),
    "event": (
        "An event, as in the feed.",
        {
            "version": _SOCKET_VERSION, "prev_version": _SOCKET_VERSION, "timestamp": TIME, "leader_id": TEXT, "event_id": ID,
            "event_type": _TYPES, "subject": TEXT, "correlation_id": ID, "tenant_id": ID, "operation_key": TEXT,
            "request_id": TEXT, "data": _OBJECT,
        },
        frozenset({"prev_version", "tenant_id", "operation_key", "request_id", "data"}),
    ),
    "checkpoint": (
        "Every event up to `version` was considered.",
        {"version": _SOCKET_VERSION, "committed_version": _SOCKET_VERSION, "leader_id": TEXT, "scanned_to": _SOCKET_VERSION},
        frozenset({"scanned_to"}),
    ),
    "acked": ("The position up to `version` is stored.", {"version": _SOCKET_VERSION}, frozenset()),
    "error": (
        "The last message: why the socket is closed.",
        {"code": TEXT, "detail": TEXT, "status": {"type": "integer"}, "outcome": TEXT, "version": _SOCKET_VERSION},
        frozenset({"status", "outcome", "version"}),
    ),
    "ack": ("The client has processed everything up to `version`.", {"version": _SOCKET_VERSION}, frozenset()),
}  # fmt: skip
_FROM_CLIENT: Final = "ack"


@router.get("/asyncapi.json", include_in_schema=False)
async def asyncapi() -> Response:
    """Return the AsyncAPI document, from which consumers can be generated."""
    return json_response(document())


@cache
def document() -> dict[str, Any]:
    """Return the document; built once per process."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth events",
            "version": "1",
            "description": "Every change, in one gapless order. A message's JetStream sequence is its version.",
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {
            "tenant": _channel(
                TENANT_ADDRESS,
                "Events that a tenant may read.",
                [event for event, kind in EVENT_KINDS.items() if kind.visibility is Visibility.TENANT],
                {"tenant_id": {"description": "the tenant's id"}},
            ),
            "operator": _channel(
                OPERATOR_ADDRESS,
                "Events that only operators may read.",
                [e for e, kind in EVENT_KINDS.items() if kind.visibility is Visibility.OPERATOR or e in _ALSO_OPERATOR],
                {},
            ),
            "notifications": notifications_channel(),
        },
        "operations": {
            f"publish_{name}_events": {"action": "send", "channel": {"$ref": f"#/channels/{name}"}}
            for name in ("tenant", "operator")
        }
        | _notifications_operations(),
        "components": {
            "messages": {event.value: _message(event, kind) for event, kind in EVENT_KINDS.items()},
            "schemas": {event.value: kind.schema() for event, kind in EVENT_KINDS.items()},
        },
    }


def _channel(address: str, description: str, events: list[EventType], parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "address": address,
        "description": description,
        "messages": {event.value: {"$ref": f"#/components/messages/{event.value}"} for event in events},
        "parameters": {**parameters, "event_type": {"description": "with its dots", "enum": [e.value for e in events]}},
    }


def _message(event: EventType, kind: EventKind) -> dict[str, Any]:
    properties = {**_ATTRIBUTES, "type": {"const": f"berth.{event}"}}
    return {
        "name": event.value,
        "title": event.value,
        "summary": kind.summary,
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "properties": {**properties, "data": {"$ref": f"#/components/schemas/{event.value}"}},
            "required": [*(name for name in properties if name not in _OPTIONAL), "data"],
        },
    }


def notifications_channel() -> dict[str, Any]:
    """Return the channel of the notification socket (docs/reference/notifications.md)."""
    query = {"subscription": TEXT, "after": _SOCKET_VERSION, "types": TEXT, "subject": TEXT}
    return {
        "address": _SOCKET_ADDRESS,
        "description": "A tenant's events as they commit; an operator's key gets all of them.",
        "messages": {kind: _socket_message(kind, *parts) for kind, parts in _SOCKET_MESSAGES.items()},
        "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
    }


def _notifications_operations() -> dict[str, Any]:
    """Return the operations of the notification socket: messages sent and received."""

    def refer(kinds: list[str]) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/{_SOCKET_NAME}/messages/{kind}"} for kind in kinds]

    channel = {"$ref": f"#/channels/{_SOCKET_NAME}"}
    sent = [kind for kind in _SOCKET_MESSAGES if kind != _FROM_CLIENT]
    return {
        "send_notifications": {"action": "send", "channel": channel, "messages": refer(sent)},
        "receive_acknowledgements": {"action": "receive", "channel": channel, "messages": refer([_FROM_CLIENT])},
    }


def _socket_message(kind: str, summary: str, members: dict[str, Any], optional: frozenset[str]) -> dict[str, Any]:
    return {
        "name": kind,
        "summary": summary,
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "properties": {"type": {"const": kind}, **members},
            "required": ["type", *(name for name in members if name not in optional)],
        },
    }
