"""Requests of a site's agent to a BMC name their attempt, so that a fenced one differs from its successor."""

from __future__ import annotations

import time
from contextvars import ContextVar

import httpx

from tests.testbuild import planting

HEADER = "X-Berth-Attempt"
"""The lease fence, the fence of the task, its type, and when the request was handed to the connection (CLOCK_MONOTONIC)."""
_ATTEMPT: ContextVar[str] = ContextVar("attempt", default="")


def attribute_requests() -> None:
    """Put the header on every request of an agent of a site."""
    from node_agent.site.bmcs import GuardedTransport
    from node_agent.site.effects import BmcEffects, Order
    from node_agent.wire.sites import BmcTaskReport

    perform, send = BmcEffects.carry_out, GuardedTransport.handle_async_request

    async def carry_out(self: BmcEffects, order: Order) -> BmcTaskReport:
        before = _ATTEMPT.set(f"{order.lease_fence} {order.body.fence} {order.body.type}")
        try:
            return await perform(self, order)
        finally:
            _ATTEMPT.reset(before)

    async def handle(self: GuardedTransport, request: httpx.Request) -> httpx.Response:
        if _ATTEMPT.get():
            request.headers[HEADER] = f"{_ATTEMPT.get()} {time.monotonic()}"
        return await send(self, request)

    planting.replace(BmcEffects, "carry_out", carry_out)
    planting.replace(GuardedTransport, "handle_async_request", handle)
