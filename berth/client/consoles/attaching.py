"""Opens the WebSocket of a console. Needs the library `websockets`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

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
    address = f"ws{base.removeprefix('http').rstrip('/')}/api/v1/allocations/{allocation_id}/console/attach"
    try:
        return connect(address, additional_headers=dict(headers), open_timeout=OPEN_SECONDS_MAX)
    except InvalidStatus as error:
        answer = error.response
        raise refusal(answer.status_code, bytes(answer.body or b""), answer.headers.get("retry-after")) from error
    except (OSError, WebSocketException) as error:
        raise Unavailable(f"{base} cannot be reached: {error}", code="unreachable") from error
