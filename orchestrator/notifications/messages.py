"""Messages of a notification socket other than events, and its close codes (docs/reference/notifications.md)."""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from berth.process.json_objects import JsonObject
from orchestrator.log.version_parameters import VERSION_MAX
from orchestrator.notifications.refusals import MessageRefused
from orchestrator.problems import Problem

PROTOCOL: Final = "berth.notifications.v1"
NORMAL, UNSUPPORTED, POLICY, FAILED, RESTART = 1000, 1003, 1008, 1011, 1012
STATUS_CODES: Final = 4000
"""Added to the HTTP status of a refusal for its close code."""
CLOSING: Final[dict[str, int]] = {
    "stopping": RESTART,
    "failed": FAILED,
    "leader_changed": 4503,
    "log_truncated": 4410,
    "unauthenticated": 4401,
    "message_refused": POLICY,
    "too_many_messages": POLICY,
}
_DETAILS: Final[dict[str, str]] = {
    "stopping": "this process is stopping; reconnect to another replica",
    "failed": "this process was unable to read the log; reconnect",
    "leader_changed": "the log was written under another PostgreSQL timeline; reconnect when an operator has accepted this one",
    "log_truncated": "events after this version were truncated",
    "unauthenticated": "the credential is no longer valid; reconnect with another",
}


class Acknowledgement(BaseModel):
    """A client's message: everything up to this version is processed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["ack"]
    version: int = Field(ge=0, le=VERSION_MAX)


def begin(after: int, leader_id: str, subscription: str | None) -> str:
    """Return the first message: events begin after this version."""
    members = {"type": "begin", "after": after, "leader_id": leader_id}
    return _text(members if subscription is None else {**members, "subscription": subscription})


def acked(version: int) -> str:
    """Return the message that the subscription's position is stored."""
    return _text({"type": "acked", "version": version})


def error(problem: Problem) -> str:
    """Return the last message: why the socket is closed."""
    members = problem.document()
    return _text({"type": "error", **{name: members[name] for name in members.keys() - {"type", "title"}}})


def ended(reason: str, version: int) -> str:
    """Return the last message when the feed ends the stream."""
    return _text({"type": "error", "code": reason, "detail": _DETAILS[reason], "version": version})


def closing_code(problem: Problem) -> int:
    """Return the WebSocket close code of a refusal."""
    return CLOSING.get(problem.code, STATUS_CODES + problem.status)


def acknowledged_version(text: str | None) -> int:
    """Return the version that a message acknowledges. Raises `MessageRefused` for any other message."""
    if text is None:
        raise MessageRefused("the message is not text; send JSON text")
    try:
        return Acknowledgement.model_validate_json(text).version
    except ValidationError:
        raise MessageRefused(
            'the message is unknown; send {"type": "ack", "version": <a version received on this socket>}'
        ) from None


def _text(members: JsonObject) -> str:
    return orjson.dumps(members, default=_plain).decode()


def _plain(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError
