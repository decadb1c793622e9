"""`GET /asyncapi.json`: the events on NATS, the feed, the socket and webhooks as an AsyncAPI 3 document, made from the one table
of event types.

https://www.asyncapi.com/docs/reference/specification/v3.0.0; messages are CloudEvents 1.0 (docs/events.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.log import asyncapi_http as http
from orchestrator.log import asyncapi_sockets as sockets
from orchestrator.log.event_messages import CONTENT_TYPE, message_schema
from orchestrator.log.event_types import EVENT_KINDS, Audience, EventKind
from orchestrator.log.events import EventType

router = APIRouter()

TENANT_ADDRESS = "berth.events.{tenant_id}.{event_type}"
OPERATOR_ADDRESS = "berth.events.operator.{event_type}"
_ADMINS_TOO = frozenset({EventType.OPERATION_REFUSED, EventType.OPERATION_COMMITTED})
"""Tenants' writes leave these for the tenant, operators' for operators."""
_TAGS: Final = [
    {"name": "nats", "description": "Published to NATS JetStream"},
    {"name": "feed", "description": "Server-sent events of the orchestrator"},
    {"name": "socket", "description": "WebSocket messages of the orchestrator"},
    {"name": "webhook", "description": "Requests to the URLs of webhooks, and events about webhooks"},
]
_SERVERS: Final[dict[str, Any]] = {
    "nats": {
        "host": "{nats_host}",
        "protocol": "nats",
        "description": "The NATS cluster of the installation",
        "variables": {"nats_host": {"description": "host and port", "default": "localhost:4222"}},
        "security": [{"$ref": "#/components/securitySchemes/nats_user"}],
    },
    **http.SERVERS,
}
_SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "nats_user": {"type": "userPassword", "description": "A NATS user whose permissions allow reading its subjects"},
    **http.SECURITY_SCHEMES,
}


_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "AsyncAPI 3 document", "content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.get("/asyncapi.json", tags=["log"], responses=_RESPONSE, response_class=Response)
async def asyncapi() -> Response:
    """The events as an AsyncAPI 3 document, for generators of consumers."""
    return json_response(document())


@cache
def document() -> dict[str, Any]:
    """The whole document; the same for as long as the process runs."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Berth events",
            "version": "1",
            "description": "Every change, in one gapless order. A message's JetStream sequence is its version.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
            "tags": _TAGS,
        },
        "servers": _SERVERS,
        "defaultContentType": CONTENT_TYPE,
        "channels": {
            "tenant": _channel(
                TENANT_ADDRESS,
                "What tenants may read.",
                [event for event, kind in EVENT_KINDS.items() if kind.audience is Audience.TENANT],
                {"tenant_id": {"description": "the tenant's id"}},
            ),
            "operator": _channel(
                OPERATOR_ADDRESS,
                "What only operators may read.",
                [e for e, kind in EVENT_KINDS.items() if kind.audience is Audience.OPERATOR or e in _ADMINS_TOO],
                {},
            ),
            "notifications": sockets.channel(),
            "feed": http.feed_channel(),
            "webhooks": http.webhook_channel(),
        },
        "operations": {
            f"publish_{name}_events": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "tags": [{"name": "nats"}],
            }
            for name in ("tenant", "operator")
        }
        | sockets.operations()
        | http.operations(),
        "components": {
            "securitySchemes": _SECURITY_SCHEMES,
            "messages": {event.value: _message(event, kind) for event, kind in EVENT_KINDS.items()},
            "schemas": {event.value: kind.schema() for event, kind in EVENT_KINDS.items()},
        },
    }


def _channel(address: str, says: str, events: list[EventType], parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "address": address,
        "description": says,
        "servers": [{"$ref": "#/servers/nats"}],
        "tags": [{"name": "nats"}],
        "messages": {event.value: {"$ref": f"#/components/messages/{event.value}"} for event in events},
        "parameters": {**parameters, "event_type": {"description": "with its dots", "enum": [e.value for e in events]}},
    }


def _message(event: EventType, kind: EventKind) -> dict[str, Any]:
    return {
        "name": event.value,
        "title": event.value,
        "summary": kind.says,
        "tags": [{"name": event.partition(".")[0]}],
        "contentType": CONTENT_TYPE,
        "payload": message_schema(event, {"$ref": f"#/components/schemas/{event.value}"}),
    }
