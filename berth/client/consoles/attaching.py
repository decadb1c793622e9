"""Opens the WebSocket of a console. Needs the library `websockets`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from websockets.asyncio import client as asynchronous
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from berth.client.errors import Unavailable
from berth.client.feed.listening import refusal

OPEN_SECONDS_MAX = 30.0
MESSAGE_BYTES_MAX = 1_024
"""What the server accepts in one message by default; longer input is sent in several."""


def attach(base: str, headers: Mapping[str, str], allocation_id: UUID) -> ClientConnection:
    """An open socket: binary messages are the console, text ones are JSON (docs/reference/fleet/console.md).

    Raises the named error of a refusal, `Unavailable` if the server is not reached.
    """
    try:
        return connect(_address(base, allocation_id), additional_headers=dict(headers), open_timeout=OPEN_SECONDS_MAX)
    except (OSError, WebSocketException) as error:
        raise _named(base, error) from error


async def attach_async(base: str, headers: Mapping[str, str], allocation_id: UUID) -> asynchronous.ClientConnection:
    """As `attach`, for asyncio."""
    try:
        return await asynchronous.connect(
            _address(base, allocation_id), additional_headers=dict(headers), open_timeout=OPEN_SECONDS_MAX
        )
    except (OSError, WebSocketException) as error:
        raise _named(base, error) from error


def _address(base: str, allocation_id: UUID) -> str:
    return f"ws{base.removeprefix('http').rstrip('/')}/api/v1/allocations/{allocation_id}/console/attach"


def _named(base: str, error: OSError | WebSocketException) -> Exception:
    if isinstance(error, InvalidStatus):
        answer = error.response
        return refusal(answer.status_code, bytes(answer.body or b""), answer.headers.get("retry-after"))
    return Unavailable(f"{base} cannot be reached: {error}", code="unreachable")
