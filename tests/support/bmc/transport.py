"""The stub without a network, for many short runs: silence is a timeout at once, a broken connection a read error."""

from __future__ import annotations

import httpx

from tests.support.bmc.service import Manner, Request, StubService


class StubTransport(httpx.AsyncBaseTransport):
    """Hands requests to a service in this process."""

    def __init__(self, service: StubService) -> None:
        self._service = service

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        headers = {name.lower(): value for name, value in request.headers.items()}
        reply = self._service.handle(Request(request.method, request.url.raw_path.decode(), headers, body))
        if reply.manner is Manner.BROKEN:
            raise httpx.ReadError("broken")
        if reply.manner is not Manner.WHOLE:
            raise httpx.ReadTimeout("silent")
        return httpx.Response(reply.status, headers=reply.headers, stream=httpx.ByteStream(reply.body))
