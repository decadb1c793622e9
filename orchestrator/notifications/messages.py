"""What is said on a socket of notifications beside the events, and how it is closed (docs/reference/notifications.md)."""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.log.refusals import MessageRefused
from orchestrator.log.wanted_versions import VERSION_MAX
from orchestrator.problems import Problem

PROTOCOL: Final = "berth.notifications.v1"
CREDENTIAL_PREFIX: Final = "berth.bearer."
"""A subprotocol that carries the credential, for browsers, which cannot send a header with a WebSocket."""
NORMAL, UNSUPPORTED, POLICY, FAILED, RESTART = 1000, 1003, 1008, 1011, 1012
OWN_CODES: Final = 4000
"""Above it: 4000 and the HTTP status that the same refusal has."""
CLOSING: Final[dict[str, int]] = {
    "stopping": RESTART,
    "failed": FAILED,
    "leader_changed": 4503,
    "log_truncated": 4410,
    "unauthenticated": 4401,
    "message_refused": POLICY,
    "too_many_messages": POLICY,
}
_SAID: Final[dict[str, str]] = {
    "stopping": "this process stops; another one goes on",
    "failed": "this process could not read on; come again",
    "leader_changed": "another Postgres answers than the log was written by",
    "log_truncated": "events behind this position are not kept any more",
    "unauthenticated": "this credential may not read any more",
}


class Acknowledgement(BaseModel):
    """What a client may say: everything up to this version is done."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["ack"]
    version: int = Field(ge=0, le=VERSION_MAX)


def begin(after: int, leader_id: str, subscription: str | None) -> str:
    """The first message: behind which version the events begin."""
    told = {"type": "begin", "after": after, "leader_id": leader_id}
    return _text(told if subscription is None else {**told, "subscription": subscription})


def acked(version: int) -> str:
    """The subscription's position is in Postgres."""
    return _text({"type": "acked", "version": version})


def error(problem: Problem) -> str:
    """Why the socket is closed right after this."""
    told = problem.document()
    return _text({"type": "error", **{k: told[k] for k in told.keys() - {"type", "title"}}})


def ended(reason: str, version: int) -> str:
    """As `error`, for what the feed ends a stream for."""
    return _text({"type": "error", "code": reason, "detail": _SAID[reason], "version": version})


def closing_code(problem: Problem) -> int:
    """The WebSocket's close code for a refusal."""
    return CLOSING.get(problem.code, OWN_CODES + problem.status)


def acknowledged_version(text: str | None) -> int:
    """The version that a client's message acknowledges. Raises `MessageRefused` for any other message."""
    if text is None:
        raise MessageRefused("messages are JSON text")
    try:
        return Acknowledgement.model_validate_json(text).version
    except ValidationError:
        raise MessageRefused('a message is {"type": "ack", "version": <a version that was told>}') from None


def _text(told: dict[str, object]) -> str:
    return orjson.dumps(told, default=_plain).decode()


def _plain(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError
