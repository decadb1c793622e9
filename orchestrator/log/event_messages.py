"""JSON Schemas of events: CloudEvents 1.0 on NATS and to webhooks, and the members on the feed and the socket."""

from __future__ import annotations

from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.log.event_members import ID, OBJECT, TEXT, TIME, WHOLE
from orchestrator.log.events import OF_THE_LOG, EventType

CONTENT_TYPE: Final = "application/cloudevents+json"
_VERSION: Final = {
    "type": "string",
    "pattern": "^[0-9]+$",
    "description": "a log position as text, because it has 64 bits",
}
_ATTRIBUTES: Final[JsonObject] = {
    "specversion": {"const": "1.0"}, "id": ID, "source": {"const": "/berth/log"}, "type": TEXT, "subject": TEXT,
    "time": TIME, "datacontenttype": {"const": "application/json"}, "version": _VERSION, "prevversion": _VERSION,
    "correlationid": ID, "traceparent": TEXT, "tenantid": ID, "operationkey": TEXT, "requestid": TEXT, "leaderid": TEXT,
}  # fmt: skip
_OPTIONAL: Final = frozenset({"tenantid", "operationkey", "requestid"})
_TYPES: Final[JsonObject] = {"enum": sorted({*(event.value for event in EventType), *OF_THE_LOG})}
EVENT_MEMBERS: Final[JsonObject] = {
    "version": WHOLE, "prev_version": WHOLE, "timestamp": TIME, "leader_id": TEXT, "event_id": ID,
    "event_type": _TYPES, "subject": TEXT, "correlation_id": ID, "tenant_id": ID, "operation_key": TEXT,
    "request_id": TEXT, "data": OBJECT,
}  # fmt: skip
"""The members of an event on the feed and the socket."""
OPTIONAL_EVENT_MEMBERS: Final = frozenset({"prev_version", "tenant_id", "operation_key", "request_id", "data"})
HEADERS: Final[dict[str, tuple[str, JsonObject]]] = {
    "webhook-id": ("The event's id; process each id once", dict(ID)),
    "webhook-timestamp": (
        "When the attempt was signed, in seconds since 1970",
        {"type": "string", "pattern": "^[0-9]{1,12}$"},
    ),
    "webhook-signature": (
        "Signatures (Standard Webhooks 1.0), separated by spaces",
        {"type": "string", "pattern": "^v1a?,[A-Za-z0-9+/]+={0,2}( v1a?,[A-Za-z0-9+/]+={0,2})*$"},
    ),
}
"""The headers of a message to a webhook."""
TEST_TYPE: Final = "webhook.test"
"""The type of a webhook's test message, which is not an event of the log."""


def test_message_schema() -> JsonObject:
    """The schema of a webhook's test message."""
    properties: JsonObject = {
        "specversion": {"const": "1.0"},
        "id": ID,
        "source": {"const": "/berth/webhooks"},
        "type": {"const": f"berth.{TEST_TYPE}"},
        "time": TIME,
        "subject": TEXT,
        "datacontenttype": {"const": "application/json"},
        "data": {"type": "object", "properties": {"webhook_id": ID}, "required": ["webhook_id"]},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def message_schema(event: EventType, data: JsonObject) -> JsonObject:
    """The schema of one message: the CloudEvents attributes, and `data` as given."""
    properties = {**_ATTRIBUTES, "type": {"const": f"berth.{event}"}}
    return {
        "type": "object",
        "properties": {**properties, "data": data},
        "required": [*(name for name in properties if name not in _OPTIONAL), "data"],
    }
