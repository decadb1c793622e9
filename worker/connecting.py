"""Connects to NATS and Temporal at start; waits until they are available, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import nats
import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from temporalio.client import Client as TemporalClient
from temporalio.client import Interceptor
from temporalio.service import RPCError

from berth.process.nats_connections import nats_options
from berth.process.server_addresses import without_password
from orchestrator import tracing
from worker.settings import Settings
from worker.startup import retry

log = structlog.get_logger()


async def connect_nats(settings: Settings) -> NatsClient:
    """A connection that reconnects without limit after it was first made."""

    async def connect() -> NatsClient:
        return await nats.connect(
            **nats_options(settings.nats_url, "berth-worker", settings.nats_ca_file, inbox="worker"),
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            error_cb=_log_nats_error,
        )

    async def connect_once() -> NatsClient:
        # The client would retry its first connection without limit; `retry` bounds it instead.
        async with asyncio.timeout(3):
            return await connect()

    temporary = (nats.errors.Error, OSError, TimeoutError)
    return await retry(
        f"NATS at {without_password(settings.nats_url)}", settings.startup_seconds_max, connect_once, temporary
    )


async def _log_nats_error(error: Exception) -> None:
    log.warning("nats_error", why=str(error) or type(error).__name__)


async def connect_temporal(settings: Settings) -> TemporalClient:
    """A client of the namespace; the SDK reconnects by itself."""

    def connect() -> Awaitable[TemporalClient]:
        return TemporalClient.connect(
            settings.temporal_address, namespace=settings.temporal_namespace, interceptors=_interceptors()
        )

    what = f"Temporal at {settings.temporal_address}"
    return await retry(what, settings.startup_seconds_max, connect, (RuntimeError, RPCError))


def _interceptors() -> list[Interceptor]:
    """Continue the trace in which a workflow was started, if tracing is enabled."""
    tracer = tracing.tracer()
    if tracer is None:
        return []
    from temporalio.contrib.opentelemetry import TracingInterceptor

    return [TracingInterceptor(tracer)]
