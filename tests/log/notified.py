"""A client of `GET /api/v1/notifications` on the `websockets` library, and what tests do with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from orchestrator.log.asyncapi import notifications_channel
from tests.api.calling import Caller

SCHEMAS = {
    kind: Draft202012Validator(message["payload"]) for kind, message in notifications_channel()["messages"].items()
}
"""What the AsyncAPI document says of each message; all that is heard is held against it."""
PROTOCOL = "berth.notifications.v1"
SECONDS_MAX = 60.0


def address(caller: Caller, **query: Any) -> str:
    """Where the caller finds its notifications."""
    url = caller.http.base_url
    asked = urlencode(query, doseq=True)
    return f"ws://{url.host}:{url.port}/api/v1/notifications" + (f"?{asked}" if asked else "")


def notified(caller: Caller, *, headers: dict[str, str] | None = None, **query: Any) -> ClientConnection:
    """An open socket, with the key in a header. Raises `InvalidStatus` where the upgrade is refused."""
    sent = {} if caller.key is None else {"authorization": f"Bearer {caller.key}"}
    return connect(
        address(caller, **query), additional_headers={**sent, **(headers or {})}, open_timeout=SECONDS_MAX, proxy=None
    )


def opened_once(caller: Caller, *, headers: dict[str, str] | None = None, **query: Any) -> None:
    """A socket that is opened and closed again. Raises `InvalidStatus` where the upgrade is refused."""
    with notified(caller, headers=headers, **query):
        pass


def as_browser(caller: Caller, *protocols: str, **query: Any) -> ClientConnection:
    """An open socket as a page in a browser opens it: no extra header, the key as a subprotocol."""
    offered = protocols or (PROTOCOL, f"berth.bearer.{caller.key}")
    return connect(
        address(caller, **query),
        subprotocols=[Subprotocol(one) for one in offered],
        open_timeout=SECONDS_MAX,
        proxy=None,
    )


def heard(socket: ClientConnection) -> dict[str, Any]:
    """The next message."""
    message = socket.recv(SECONDS_MAX)
    assert isinstance(message, str)
    told = json.loads(message)
    assert isinstance(told, dict)
    SCHEMAS[told["type"]].validate(told)
    return told


def heard_until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of this type, what comes before it passed over."""
    while (told := heard(socket))["type"] != kind:
        assert told["type"] != "error", told
    return told


def events_on(socket: ClientConnection, number: int) -> list[dict[str, Any]]:
    """The next so many events."""
    return [heard_until(socket, "event") for _ in range(number)]


def acknowledge(socket: ClientConnection, version: int) -> int:
    """Acknowledge everything up to the version; returns the subscription's position afterwards."""
    socket.send(json.dumps({"type": "ack", "version": version}))
    while (kept := heard_until(socket, "acked")["version"]) < version:
        pass
    return int(kept)


def last_word(socket: ClientConnection) -> tuple[int, dict[str, Any] | None]:
    """The close code, and the error frame before it, if there was one."""
    told: dict[str, Any] | None = None
    try:
        while True:
            told = heard(socket)
    except ConnectionClosed as closed:
        code = 1006 if closed.rcvd is None else closed.rcvd.code
        return code, told if told is not None and told["type"] == "error" else None


def refused(caller: Caller, *, headers: dict[str, str] | None = None, **query: Any) -> tuple[int, dict[str, Any]]:
    """Status and problem document of an upgrade that is refused."""
    try:
        opened_once(caller, headers=headers, **query)
    except InvalidStatus as refusal:
        answer = refusal.response
    else:
        raise AssertionError("it was not refused")
    assert answer.body is not None
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, json.loads(answer.body)


def chained(events: Sequence[dict[str, Any]], after: int) -> bool:
    """Whether each event's `prev_version` names the one before, and that of the first is at most `after`."""
    previous = [event["prev_version"] for event in events]
    return previous[0] <= after and previous[1:] == [event["version"] for event in events[:-1]]
