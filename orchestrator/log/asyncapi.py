"""`GET /asyncapi.json`: an AsyncAPI 3 document of the events on NATS, the feed, WebSockets and webhooks.

https://www.asyncapi.com/docs/reference/specification/v3.0.0; messages on NATS and to webhooks are
CloudEvents 1.0 (docs/reference/events.md). The document is generated from the table of event types.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from berth.process.json_objects import JsonObject
from orchestrator.http.static_documents import StaticDocument
from orchestrator.log import asyncapi_http as http
from orchestrator.log.event_kinds import EventKind, Visibility
from orchestrator.log.event_members import TEXT, WHOLE
from orchestrator.log.event_messages import CONTENT_TYPE, EVENT_MEMBERS, OPTIONAL_EVENT_MEMBERS, message_schema
from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType
from orchestrator.tenants.required_roles import without_roles

router = APIRouter()

TENANT_ADDRESS = "berth.events.{tenant_id}.{event_type}"
OPERATOR_ADDRESS = "berth.events.operator.{event_type}"
_ALSO_OPERATOR = frozenset({EventType.OPERATION_REFUSED, EventType.OPERATION_COMMITTED})
"""Emitted to the tenant for its writes, and to operators for theirs."""
_TAGS: Final = [
    {"name": "nats", "description": "Published to NATS JetStream"},
    {"name": "feed", "description": "Server-sent events of the orchestrator"},
    {"name": "socket", "description": "WebSocket messages of the orchestrator"},
    {"name": "webhook", "description": "Requests to the URLs of webhooks, and events about webhooks"},
]
_SERVERS: Final[JsonObject] = {
    "nats": {
        "host": "{nats_host}",
        "protocol": "nats",
        "description": "The NATS cluster of the installation",
        "variables": {"nats_host": {"description": "host and port", "default": "localhost:4222"}},
        "security": [{"$ref": "#/components/securitySchemes/nats_user"}],
    },
    **http.SERVERS,
}
_SECURITY_SCHEMES: Final[JsonObject] = {
    "nats_user": {"type": "userPassword", "description": "A NATS user whose permissions allow reading its subjects"},
    **http.SECURITY_SCHEMES,
}

_SOCKET_NAME: Final = "notifications"
_SOCKET_ADDRESS: Final = "/api/v1/notifications"
_SOCKET_TAGS: Final = [{"name": "socket"}]
_SOCKET_MESSAGES: Final[dict[str, tuple[str, JsonObject, frozenset[str]]]] = {
    "begin": (
        "The first message: events begin after this version.",
        {"after": WHOLE, "leader_id": TEXT, "subscription": TEXT},
        frozenset({"subscription"}),
    ),
    "event": (
        "An event, as in the feed.",
        EVENT_MEMBERS,
        OPTIONAL_EVENT_MEMBERS,
    ),
    "checkpoint": (
        "Every event up to `version` was considered.",
        {"version": WHOLE, "committed_version": WHOLE, "leader_id": TEXT, "scanned_to": WHOLE},
        frozenset(),
    ),
    "acked": ("The position up to `version` is stored.", {"version": WHOLE}, frozenset()),
    "error": (
        "The last message: why the socket is closed.",
        {"code": TEXT, "detail": TEXT, "status": {"type": "integer"}, "outcome": TEXT, "version": WHOLE},
        frozenset({"status", "outcome", "version"}),
    ),
    "ack": ("The client has processed everything up to `version`.", {"version": WHOLE}, frozenset()),
}  # fmt: skip
_FROM_CLIENT: Final = "ack"
_PUBLISHED: Final = {
    "tenant": "Publish each event of a tenant once it has a version, in the order of versions.",
    "operator": "Publish each event that only operators may read once it has a version, in the order of versions.",
}


_RESPONSE: dict[int | str, JsonObject] = {
    200: {"description": "AsyncAPI 3 document", "content": {"application/json": {"schema": {"type": "object"}}}}
}


def _encode() -> bytes:
    return orjson.dumps(document())


_DOCUMENT: Final = StaticDocument(_encode)


@router.get("/asyncapi.json", tags=["log"], responses=_RESPONSE, response_class=Response)
@without_roles
async def asyncapi(request: Request) -> Response:
    """Return the AsyncAPI document, from which consumers can be generated."""
    return await _DOCUMENT.answer(request)


@cache
def document() -> JsonObject:
    """Return the document; built once per process."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth events",
            "version": "1",
            "description": "Every change, in one gapless order. A message's JetStream sequence is its version.",
            "contact": {"name": "The operators of this installation"},
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
            "tags": _TAGS,
        },
        "servers": _SERVERS,
        "defaultContentType": CONTENT_TYPE,
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
            "feed": http.feed_channel(),
            "webhooks": http.webhook_channel(),
        },
        "operations": {
            f"publish_{name}_events": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "description": description,
                "tags": [{"name": "nats"}],
            }
            for name, description in _PUBLISHED.items()
        }
        | _notifications_operations()
        | http.operations(),
        "components": {
            "securitySchemes": _SECURITY_SCHEMES,
            "messages": {event.value: _message(event, kind) for event, kind in EVENT_KINDS.items()},
            "schemas": {event.value: kind.schema() for event, kind in EVENT_KINDS.items()},
        },
    }


def _channel(address: str, description: str, events: list[EventType], parameters: JsonObject) -> JsonObject:
    return {
        "address": address,
        "description": description,
        "servers": [{"$ref": "#/servers/nats"}],
        "tags": [{"name": "nats"}],
        "messages": {event.value: {"$ref": f"#/components/messages/{event.value}"} for event in events},
        "parameters": {**parameters, "event_type": {"description": "with its dots", "enum": [e.value for e in events]}},
    }


def _message(event: EventType, kind: EventKind) -> JsonObject:
    return {
        "name": event.value,
        "title": event.value,
        "summary": kind.summary,
        "tags": [{"name": event.partition(".")[0]}],
        "contentType": CONTENT_TYPE,
        "payload": message_schema(event, {"$ref": f"#/components/schemas/{event.value}"}),
    }


def notifications_channel() -> JsonObject:
    """Return the channel of the notification socket (docs/reference/notifications.md)."""
    query = {"subscription": TEXT, "after": WHOLE, "types": TEXT, "subject": TEXT}
    return {
        "address": _SOCKET_ADDRESS,
        "description": "A tenant's events as they commit; an operator's key gets all of them.",
        "servers": [{"$ref": "#/servers/sockets"}],
        "tags": _SOCKET_TAGS,
        "messages": {kind: _socket_message(kind, *parts) for kind, parts in _SOCKET_MESSAGES.items()},
        "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
    }


def _notifications_operations() -> JsonObject:
    """Return the operations of the notification socket: messages sent and received."""

    def refer(kinds: list[str]) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/{_SOCKET_NAME}/messages/{kind}"} for kind in kinds]

    channel = {"$ref": f"#/channels/{_SOCKET_NAME}"}
    sent = [kind for kind in _SOCKET_MESSAGES if kind != _FROM_CLIENT]
    return {
        "send_notifications": {
            "action": "send",
            "channel": channel,
            "description": "Send events and checkpoints from the requested version on, in order.",
            "messages": refer(sent),
            "tags": _SOCKET_TAGS,
        },
        "receive_acknowledgements": {
            "action": "receive",
            "channel": channel,
            "description": "Store the client's position, so that it resumes after it.",
            "messages": refer([_FROM_CLIENT]),
            "tags": _SOCKET_TAGS,
        },
    }


def _socket_message(kind: str, summary: str, members: JsonObject, optional: frozenset[str]) -> JsonObject:
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
