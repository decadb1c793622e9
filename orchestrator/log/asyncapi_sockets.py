"""Notifications in the AsyncAPI document: the messages of the socket, either way (docs/notifications.md)."""

from __future__ import annotations

from typing import Any, Final

from orchestrator.log.event_types import ID, TEXT, TIME, WHOLE
from orchestrator.log.events import EventType

NAME: Final = "notifications"
ADDRESS: Final = "/api/v1/notifications"
_VERSION: Final = WHOLE
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_TYPES: Final[dict[str, Any]] = {"enum": sorted({*(event.value for event in EventType), "log.version_lost"})}
EVENT_MEMBERS: Final[dict[str, Any]] = {
    "version": _VERSION, "prev_version": _VERSION, "timestamp": TIME, "leader_id": TEXT, "event_id": ID,
    "event_type": _TYPES, "subject": TEXT, "correlation_id": ID, "tenant_id": ID, "operation_key": TEXT,
    "request_id": TEXT, "data": _OBJECT,
}  # fmt: skip
OPTIONAL_EVENT_MEMBERS: Final = frozenset({"prev_version", "tenant_id", "operation_key", "request_id", "data"})
_MESSAGES: Final[dict[str, tuple[str, dict[str, Any], frozenset[str]]]] = {
    "begin": (
        "The first one: behind which version the events begin.",
        {"after": _VERSION, "leader_id": TEXT, "subscription": TEXT},
        frozenset({"subscription"}),
    ),
    "event": (
        "An event, as the feed tells it.",
        EVENT_MEMBERS,
        OPTIONAL_EVENT_MEMBERS,
    ),
    "checkpoint": (
        "Everything up to `version` was looked at.",
        {"version": _VERSION, "committed_version": _VERSION, "leader_id": TEXT, "scanned_to": _VERSION},
        frozenset(),
    ),
    "acked": ("So far the position is in Postgres.", {"version": _VERSION}, frozenset()),
    "error": (
        "The last one: why the socket is closed.",
        {"code": TEXT, "detail": TEXT, "status": {"type": "integer"}, "outcome": TEXT, "version": _VERSION},
        frozenset({"status", "outcome", "version"}),
    ),
    "ack": ("The client has done with everything up to `version`.", {"version": _VERSION}, frozenset()),
}  # fmt: skip
FROM_CLIENT: Final = "ack"


def channel() -> dict[str, Any]:
    """The socket."""
    query = {"subscription": TEXT, "after": _VERSION, "types": TEXT, "subject": TEXT}
    return {
        "address": ADDRESS,
        "description": "A tenant's events as they commit; an operator's key gets all of them.",
        "servers": [{"$ref": "#/servers/sockets"}],
        "tags": [{"name": "socket"}],
        "messages": {kind: _message(kind, *told) for kind, told in _MESSAGES.items()},
        "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
    }


def operations() -> dict[str, Any]:
    """What the server says, and what it takes."""

    def refer(kinds: list[str]) -> list[dict[str, str]]:
        return [{"$ref": f"#/channels/{NAME}/messages/{kind}"} for kind in kinds]

    where = {"$ref": f"#/channels/{NAME}"}
    tags = [{"name": "socket"}]
    said = [kind for kind in _MESSAGES if kind != FROM_CLIENT]
    return {
        "tell_notifications": {"action": "send", "channel": where, "messages": refer(said), "tags": tags},
        "take_acknowledgements": {
            "action": "receive",
            "channel": where,
            "messages": refer([FROM_CLIENT]),
            "tags": tags,
        },
    }


def _message(kind: str, says: str, members: dict[str, Any], optional: frozenset[str]) -> dict[str, Any]:
    return {
        "name": kind,
        "summary": says,
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "properties": {"type": {"const": kind}, **members},
            "required": ["type", *(name for name in members if name not in optional)],
        },
    }
