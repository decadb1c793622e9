"""The feed and webhooks in the AsyncAPI document, and the servers of the orchestrator (docs/reference/feed.md, webhooks.md)."""

from __future__ import annotations

from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.log.event_members import TEXT, WHOLE
from orchestrator.log.event_messages import (
    CONTENT_TYPE,
    EVENT_MEMBERS,
    HEADERS,
    OPTIONAL_EVENT_MEMBERS,
    TEST_TYPE,
    test_message_schema,
)
from orchestrator.log.event_types import EVENT_KINDS

SERVERS: Final[JsonObject] = {
    name: {
        "host": "{api_host}",
        "protocol": protocol,
        "description": about,
        "variables": {"api_host": {"description": "host and port of the API", "default": "localhost:8080"}},
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
    }
    for name, protocol, about in (
        ("api", "https", "The public listener of the orchestrator"),
        ("sockets", "wss", "The same listener, for WebSockets"),
    )
} | {
    "receiver": {
        "host": "{receiver_host}",
        "protocol": "https",
        "description": "The host of a webhook's URL",
        "variables": {"receiver_host": {"description": "host and port", "default": "hooks.example.com"}},
        "security": [{"$ref": "#/components/securitySchemes/webhook_signature"}],
    }
}
SECURITY_SCHEMES: Final[JsonObject] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an OIDC token"},
    "webhook_signature": {
        "type": "httpApiKey",
        "name": "webhook-signature",
        "in": "header",
        "description": "HMAC-SHA256 or Ed25519 over id, timestamp and body (Standard Webhooks 1.0)",
    },
}


def feed_channel() -> JsonObject:
    """`GET /v1/subscribe`: server-sent events; the payload of a message is the JSON in its `data`."""
    checkpoint = {"committed_version": WHOLE, "leader_id": TEXT, "scanned_to": WHOLE}
    event = {name: schema for name, schema in EVENT_MEMBERS.items() if name != "type"}
    return {
        "address": "/v1/subscribe",
        "description": "The log from any version on, as server-sent events without an end.",
        "servers": [{"$ref": "#/servers/api"}],
        "tags": [{"name": "feed"}],
        "messages": {
            "event": _sse(
                "event", "An event of the log; its type is the SSE event name.", event, OPTIONAL_EVENT_MEMBERS
            ),
            "checkpoint": _sse("checkpoint", "Every event up to `scanned_to` was sent or filtered out.", checkpoint),
            "end": _sse("end", "The last message: why the server ends the stream.", {"reason": TEXT, "version": WHOLE}),
        },
        "bindings": {"http": {"bindingVersion": "0.3.0"}},
    }


def webhook_channel() -> JsonObject:
    """Requests to the URLs of webhooks: the same documents as on NATS, and test messages."""
    return {
        "address": "{path}",
        "description": "The URL of a webhook. A tenant's webhook receives what tenants may read, an operator's every event.",
        "servers": [{"$ref": "#/servers/receiver"}],
        "tags": [{"name": "webhook"}],
        "parameters": {"path": {"description": "path and query of the webhook's URL"}},
        "messages": {event.value: {"$ref": f"#/components/messages/{event.value}"} for event in EVENT_KINDS}
        | {TEST_TYPE: _test_message()},
    }


def _test_message() -> JsonObject:
    """The message of `berth webhook test`."""
    return {
        "name": TEST_TYPE,
        "title": TEST_TYPE,
        "summary": "a test message; it has no place in the log",
        "contentType": CONTENT_TYPE,
        "tags": [{"name": "webhook"}],
        "headers": {"type": "object", "properties": {name: schema for name, (_, schema) in HEADERS.items()}},
        "payload": test_message_schema(),
    }


def operations() -> JsonObject:
    """What the orchestrator and the worker send over HTTP."""
    return {
        "send_feed_events": {
            "action": "send",
            "channel": {"$ref": "#/channels/feed"},
            "description": "Send the events after the requested version as server-sent events, in order.",
            "tags": [{"name": "feed"}],
            "bindings": {"http": {"method": "GET", "query": _feed_query(), "bindingVersion": "0.3.0"}},
        },
        "send_webhook_messages": {
            "action": "send",
            "channel": {"$ref": "#/channels/webhooks"},
            "description": "Send each event that a webhook subscribes to, signed, until its server accepts it.",
            "tags": [{"name": "webhook"}],
            "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}},
        },
    }


def _feed_query() -> JsonObject:
    texts = {"type": "array", "items": TEXT}
    properties = {"after": WHOLE, "durable": {"type": "boolean"}, "types": texts, "subject": texts}
    return {"type": "object", "properties": properties}


def _sse(name: str, about: str, members: JsonObject, optional: frozenset[str] = frozenset()) -> JsonObject:
    return {
        "name": name,
        "summary": about,
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "properties": members,
            "required": [member for member in members if member not in optional],
        },
    }
