"""A tenant at a console, on the `websockets` library."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

SECONDS_MAX = 60.0


def attached(api_url: str, key: str | None, allocation_id: UUID | str, **options: Any) -> ClientConnection:
    """An open socket. Raises `InvalidStatus` where the upgrade is refused."""
    url = f"ws{api_url.removeprefix('http')}/api/v1/allocations/{allocation_id}/console/attach"
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    socket: ClientConnection = connect(url, additional_headers=headers, open_timeout=SECONDS_MAX, proxy=None, **options)
    return socket


def refused(api_url: str, key: str | None, allocation_id: UUID | str) -> tuple[int, dict[str, Any]]:
    """Status and problem document of an upgrade that is refused."""
    with pytest.raises(InvalidStatus) as caught, attached(api_url, key, allocation_id):
        pass
    answer = caught.value.response
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, json.loads(answer.body or b"")


def message(socket: ClientConnection) -> dict[str, Any]:
    """The next text message; output before it is passed over."""
    while isinstance(found := socket.recv(SECONDS_MAX), bytes):
        pass
    content: dict[str, Any] = json.loads(found)
    return content


def begun(socket: ClientConnection) -> dict[str, Any]:
    """The message that the agent is connected."""
    assert message(socket)["type"] == "waiting"
    found = message(socket)
    assert found["type"] == "begin", found
    return found


def output_until(socket: ClientConnection, wanted: bytes) -> bytes:
    """What the guest writes, up to these bytes."""
    output = b""
    while wanted not in output:
        found = socket.recv(SECONDS_MAX)
        if isinstance(found, bytes):
            output += found
    return output


def ending(socket: ClientConnection) -> tuple[int, str | None]:
    """The close code, and the reason that the last message names; output before it is passed over."""
    reason = None
    try:
        while True:
            found = socket.recv(SECONDS_MAX)
            if isinstance(found, str) and (content := json.loads(found))["type"] == "ended":
                reason = content["reason"]
    except ConnectionClosed as closed:
        return (1006 if closed.rcvd is None else closed.rcvd.code), reason
