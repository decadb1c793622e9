"""`GET /asyncapi.json`: the events on NATS and on WebSockets as an AsyncAPI 3 document, made from the one table of event types.

https://www.asyncapi.com/docs/reference/specification/v3.0.0; messages are CloudEvents 1.0 (docs/reference/events.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.log import asyncapi_sockets as sockets
from orchestrator.log.event_types import EVENT_KINDS, ID, TEXT, TIME, Audience, EventKind
from orchestrator.log.events import EventType

router = APIRouter()

TENANT_ADDRESS = "berth.events.{tenant_id}.{event_type}"
OPERATOR_ADDRESS = "berth.events.operator.{event_type}"
_VERSION = {"type": "string", "pattern": "^[0-9]+$", "description": "a place in the log, as text: 64 bits"}
_ATTRIBUTES: dict[str, Any] = {
    "specversion": {"const": "1.0"}, "id": ID, "source": {"const": "/berth/log"}, "type": TEXT, "subject": TEXT,
    "time": TIME, "datacontenttype": {"const": "application/json"}, "version": _VERSION, "prevversion": _VERSION,
    "correlationid": ID, "traceparent": TEXT, "tenantid": ID, "operationkey": TEXT, "requestid": TEXT, "leaderid": TEXT,
}  # fmt: skip
_NOT_ALWAYS = frozenset({"tenantid", "operationkey", "requestid"})
_ADMINS_TOO = frozenset({EventType.OPERATION_REFUSED, EventType.OPERATION_COMMITTED})
"""Tenants' writes leave these for the tenant, operators' for operators."""


@router.get("/asyncapi.json", include_in_schema=False)
async def asyncapi() -> Response:
    """The events as they are published, for those who generate consumers."""
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
        },
        "defaultContentType": "application/cloudevents+json",
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
        },
        "operations": {
            f"publish_{name}_events": {"action": "send", "channel": {"$ref": f"#/channels/{name}"}}
            for name in ("tenant", "operator")
        }
        | sockets.operations(),
        "components": {
            "messages": {event.value: _message(event, kind) for event, kind in EVENT_KINDS.items()},
            "schemas": {event.value: kind.schema() for event, kind in EVENT_KINDS.items()},
        },
    }


def _channel(address: str, says: str, events: list[EventType], parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "address": address,
        "description": says,
        "messages": {event.value: {"$ref": f"#/components/messages/{event.value}"} for event in events},
        "parameters": {**parameters, "event_type": {"description": "with its dots", "enum": [e.value for e in events]}},
    }


def _message(event: EventType, kind: EventKind) -> dict[str, Any]:
    properties = {**_ATTRIBUTES, "type": {"const": f"berth.{event}"}}
    return {
        "name": event.value,
        "title": event.value,
        "summary": kind.says,
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "properties": {**properties, "data": {"$ref": f"#/components/schemas/{event.value}"}},
            "required": [*(name for name in properties if name not in _NOT_ALWAYS), "data"],
        },
    }
