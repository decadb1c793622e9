"""The `webhooks` section of the OpenAPI document: one entry per event family, with the schema of every message."""

from __future__ import annotations

from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.log.event_messages import CONTENT_TYPE, HEADERS, TEST_TYPE, message_schema, test_message_schema
from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType

_RESPONSES: Final = {
    "2XX": {"description": "The message is delivered"},
    "410": {"description": "The webhook is disabled"},
    "default": {"description": "The message is sent again with backoff, at most ten times"},
}


def describe_webhooks(document: JsonObject) -> None:
    """Add the section, and the schemas of the messages and of their data."""
    schemas = document["components"]["schemas"]
    families: dict[str, dict[str, str]] = {}
    for event, kind in EVENT_KINDS.items():
        name = _schema_name(event)
        schemas[f"{name}Data"] = {"description": kind.summary, **kind.schema()}
        schemas[name] = {
            "description": kind.summary,
            **message_schema(event, {"$ref": f"#/components/schemas/{name}Data"}),
        }
        families.setdefault(event.partition(".")[0], {})[f"berth.{event}"] = name
    schemas["WebhookTestEvent"] = {"description": "a test message", **test_message_schema()}
    families["webhook"][f"berth.{TEST_TYPE}"] = "WebhookTestEvent"
    document["webhooks"] = {family: _entry(family, messages) for family, messages in families.items()}


def _schema_name(event: EventType) -> str:
    return "".join(word.capitalize() for word in event.replace(".", "_").split("_")) + "Event"


def _entry(family: str, messages: dict[str, str]) -> JsonObject:
    references = {of_type: f"#/components/schemas/{name}" for of_type, name in messages.items()}
    schema: JsonObject = {
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "type", "mapping": references},
    }
    return {
        "post": {
            "operationId": f"receive_{family}_event",
            "summary": f"Events of the family `{family}`",
            "tags": ["webhooks"],
            "security": [],
            "parameters": [
                {"name": name, "in": "header", "required": True, "description": about, "schema": schema_of}
                for name, (about, schema_of) in HEADERS.items()
            ],
            "requestBody": {"required": True, "content": {CONTENT_TYPE: {"schema": schema}}},
            "responses": _RESPONSES,
        }
    }
