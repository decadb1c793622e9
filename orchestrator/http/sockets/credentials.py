"""The credential of a WebSocket: the Authorization header, or a subprotocol, because a browser cannot send headers with one.

It is checked again for as long as the socket is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.websockets import WebSocket

from orchestrator.problems import Malformed, Problem

CREDENTIAL_PREFIX: Final = "berth.bearer."
"""Prefix of the subprotocol that carries the credential."""
CREDENTIAL_REFUSED: Final = (401, 403)


def credential_of(socket: WebSocket, protocol: str) -> tuple[str | None, str | None]:
    """Return the credential offered as a subprotocol, as an Authorization value, and the protocol to accept.

    Raises `Malformed` for several credentials, or for one without the protocol, which a browser cannot accept.
    """
    offered: list[str] = socket.scope["subprotocols"]
    spoken = protocol if protocol in offered else None
    found = [one.removeprefix(CREDENTIAL_PREFIX) for one in offered if one.startswith(CREDENTIAL_PREFIX)]
    if not found:
        return None, spoken
    if len(found) > 1 or spoken is None:
        raise Malformed(f"the subprotocols must be {protocol} and one {CREDENTIAL_PREFIX}<key or token>")
    return f"Bearer {found[0]}", spoken


async def until_refused(recheck: Callable[[], Awaitable[Any]], pause_seconds: float) -> None:
    """Return when the credential gives no right any more: revoked, expired, its tenant suspended.

    A check that fails for another reason, such as a lost database, is repeated.
    """
    while True:
        await asyncio.sleep(pause_seconds)
        try:
            await recheck()
        except Problem as problem:
            if problem.status in CREDENTIAL_REFUSED:
                return
