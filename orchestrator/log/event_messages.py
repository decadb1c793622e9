"""JSON Schemas of events as they are sent on NATS and to webhooks: CloudEvents 1.0 in structured JSON (docs/events.md)."""

from __future__ import annotations

from typing import Any, Final

from orchestrator.log.event_types import ID, TEXT, TIME
from orchestrator.log.events import EventType

CONTENT_TYPE: Final = "application/cloudevents+json"
_VERSION: Final = {
    "type": "string",
    "pattern": "^[0-9]+$",
    "description": "a log position as text, because it has 64 bits",
}
_ATTRIBUTES: Final[dict[str, Any]] = {
    "specversion": {"const": "1.0"}, "id": ID, "source": {"const": "/berth/log"}, "type": TEXT, "subject": TEXT,
    "time": TIME, "datacontenttype": {"const": "application/json"}, "version": _VERSION, "prevversion": _VERSION,
    "correlationid": ID, "traceparent": TEXT, "tenantid": ID, "operationkey": TEXT, "requestid": TEXT, "leaderid": TEXT,
}  # fmt: skip
_OPTIONAL: Final = frozenset({"tenantid", "operationkey", "requestid"})
HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
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
"""The type of a webhook's test message, which is no event of the log."""


def test_message_schema() -> dict[str, Any]:
    """The schema of a webhook's test message."""
    properties: dict[str, Any] = {
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


def message_schema(event: EventType, data: dict[str, Any]) -> dict[str, Any]:
    """The schema of one message: the CloudEvents attributes, and `data` as given."""
    properties = {**_ATTRIBUTES, "type": {"const": f"berth.{event}"}}
    return {
        "type": "object",
        "properties": {**properties, "data": data},
        "required": [*(name for name in properties if name not in _OPTIONAL), "data"],
    }
