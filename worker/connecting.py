"""Waits for the servers at start: bounded, saying for what (issue: servers not up yet)."""

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

from orchestrator import tracing
from orchestrator.database.schema_revision import require_schema
from orchestrator.database.transactions import Database
from orchestrator.problems import Problem
from worker.problems import CannotRun
from worker.settings import Settings

log = structlog.get_logger()

PAUSE_SECONDS = 0.3

T = TypeVar("T")


async def _patiently(
    what: str, seconds_max: float, connect: Callable[[], Awaitable[T]], passing: tuple[type[Exception], ...]
) -> T:
    """Try until it works. Raises `CannotRun` with the last reason when the time is up."""
    deadline = time.monotonic() + seconds_max
    said = ""
    while True:
        try:
            return await connect()
        except passing as error:
            why = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise CannotRun(f"waited {seconds_max:.0f} s for {what}: {why}") from error
            if why != said:
                log.info("waiting", for_what=what, why=why)
                said = why
        await asyncio.sleep(PAUSE_SECONDS)


async def await_database(database: Database, settings: Settings) -> None:
    """Return when the database answers and has a schema."""
    await _patiently("the database", settings.startup_seconds_max, lambda: require_schema(database), (Problem, OSError))


async def connect_nats(settings: Settings) -> NatsClient:
    """A connection that comes back by itself, for ever, once it was made."""

    async def connect() -> NatsClient:
        return await nats.connect(
            settings.nats_url.split(","),
            name="berth-worker",
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            error_cb=_say_nats_error,
        )

    async def first() -> NatsClient:
        # A server that is not there yet is tried for as long as we say, not for as long as the client likes.
        async with asyncio.timeout(3):
            return await connect()

    passing = (nats.errors.Error, OSError, TimeoutError)
    return await _patiently(f"NATS at {settings.nats_url}", settings.startup_seconds_max, first, passing)


async def _say_nats_error(error: Exception) -> None:
    log.warning("nats_trouble", why=str(error) or type(error).__name__)


async def connect_temporal(settings: Settings) -> TemporalClient:
    """A client of the namespace; Temporal's SDK connects again by itself."""

    def connect() -> Awaitable[TemporalClient]:
        return TemporalClient.connect(
            settings.temporal_address, namespace=settings.temporal_namespace, interceptors=_interceptors()
        )

    what = f"Temporal at {settings.temporal_address}"
    return await _patiently(what, settings.startup_seconds_max, connect, (RuntimeError, RPCError))


def _interceptors() -> list[Interceptor]:
    """Workflows and their commands join the trace that they were started in, if traces are wanted."""
    tracer = tracing.tracer()
    if tracer is None:
        return []
    from temporalio.contrib.opentelemetry import TracingInterceptor

    return [TracingInterceptor(tracer)]
