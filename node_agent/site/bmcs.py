"""How the agent of a site reaches a BMC: the Redfish client, whose every request is sent only while the lease is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import Bmc, BmcAccess, Deadlines
from node_agent.redfish.tls import pinned_context

Guard = Callable[[], None]
"""Raises `LeaseEnded` if nothing may be sent any more."""
Connect = Callable[[BmcAccess, Guard, bool], Bmc]
"""Makes a client for one task. It connects with its first call, and is closed after the task. The last argument: no command of
an earlier client can be queued at the BMC, so its power state is certain at once (`quiet`)."""

_BEFORE_SENDING: Final = (".send_request_headers.started", ".send_request_body.started")
"""Events of httpcore's `trace` extension right before bytes of a request are written, after TCP and TLS are set up."""
DEADLINES = Deadlines(settle_seconds=300)


class GuardedTransport(httpx.AsyncBaseTransport):
    """Evaluates the guard before each request, and again before its bytes: a process that stood still sends nothing after its
    lease, nor does one whose connection took longer than that."""

    def __init__(self, transport: httpx.AsyncBaseTransport, guard: Guard) -> None:
        self._transport = transport
        self._guard = guard

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, or raise what the guard raises."""
        self._guard()
        request.extensions = {**request.extensions, "trace": self._traced}
        return await self._transport.handle_async_request(request)

    async def _traced(self, event: str, info: object) -> None:
        if event.endswith(_BEFORE_SENDING):
            self._guard()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def connect_redfish(access: BmcAccess, guard: Guard, quiet: bool = False) -> Bmc:
    """The Redfish client of one BMC. Raises ValueNotAllowed for a URL or fingerprint of another form."""
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=1, keepalive_expiry=2)
    transport = httpx.AsyncHTTPTransport(
        verify=pinned_context(access.certificate_sha256), trust_env=False, limits=limits
    )
    return RedfishBmc(access, DEADLINES, quiet=quiet, transport=GuardedTransport(transport, guard))
