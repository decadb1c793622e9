"""HEAD wherever GET is (RFC 9110 §9.3.2): the application serves a GET, and the body is left out of the response."""

from __future__ import annotations

import asyncio

from orchestrator.http.asgi import Message, Receive, Scope, Send


def as_get(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """Scope, receive and send with which an application serves a HEAD request as a GET.

    The response ends with the first part of its body; a response that would last (an event stream) then finds its client
    disconnected.
    """
    ended = asyncio.Event()

    async def receive_until_ended() -> Message:
        if ended.is_set():
            return {"type": "http.disconnect"}
        receiving = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait([receiving, ending], return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else {"type": "http.disconnect"}
        finally:
            receiving.cancel()
            ending.cancel()

    async def send_head(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
        elif not ended.is_set():
            ended.set()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return {**scope, "method": "GET"}, receive_until_ended, send_head
