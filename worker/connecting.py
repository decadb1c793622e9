"""Waits at start until PostgreSQL, NATS and Temporal are available, for a bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

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
from orchestrator.database.schema_revision import require_schema
from orchestrator.database.transactions import Database
from orchestrator.problems import Problem
from worker.problems import CannotRun
from worker.settings import Settings

log = structlog.get_logger()

PAUSE_SECONDS = 0.3

T = TypeVar("T")


async def _retry(
    what: str, seconds_max: float, connect: Callable[[], Awaitable[T]], temporary: tuple[type[Exception], ...]
) -> T:
    """Retry on `temporary` errors. Raises `CannotRun` with the last error after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    logged = ""
    while True:
        try:
            return await connect()
        except temporary as error:
            why = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise CannotRun(f"waited {seconds_max:.0f} s for {what}: {why}") from error
            if why != logged:
                log.info("waiting", for_what=what, why=why)
                logged = why
        await asyncio.sleep(PAUSE_SECONDS)


async def await_database(database: Database, settings: Settings) -> None:
    """Return when the database answers and has the schema."""
    await _retry("the database", settings.startup_seconds_max, lambda: require_schema(database), (Problem, OSError))


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
        # The client would retry its first connection without limit; `_retry` bounds it instead.
        async with asyncio.timeout(3):
            return await connect()

    temporary = (nats.errors.Error, OSError, TimeoutError)
    return await _retry(
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
    return await _retry(what, settings.startup_seconds_max, connect, (RuntimeError, RPCError))


def _interceptors() -> list[Interceptor]:
    """Continue the trace in which a workflow was started, if tracing is enabled."""
    tracer = tracing.tracer()
    if tracer is None:
        return []
    from temporalio.contrib.opentelemetry import TracingInterceptor

    return [TracingInterceptor(tracer)]
