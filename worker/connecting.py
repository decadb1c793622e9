"""Connects to NATS and Temporal at start; waits until they are available, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import nats
import nats.errors
import structlog
from nats.aio.client import Client as NatsClient
from temporalio.client import Client as TemporalClient
from temporalio.client import Interceptor
from temporalio.common import HeaderCodecBehavior
from temporalio.service import RPCError, TLSConfig

from berth.process.nats_connections import nats_options
from berth.process.server_addresses import without_password
from berth.process.temporal_connections import TemporalConnection, UnusableTemporalSettings, host_of, read_connection
from orchestrator import tracing
from worker.health import ANSWER_SECONDS_MAX, Question
from worker.payloads import HeaderEncryption, PayloadKeys, encrypting_converter
from worker.problems import CannotRun
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


async def connect_temporal(settings: Settings, keys: PayloadKeys) -> TemporalClient:
    """A client of the namespace that encrypts every payload; the SDK reconnects by itself.

    Raises `CannotRun` if a file cannot be used, settings contradict each other, or Temporal stays unavailable.
    """
    try:
        connection = read_connection(settings.temporal_address, settings)
    except UnusableTemporalSettings as error:
        raise CannotRun(f"Temporal cannot be reached with these settings: {error}") from error
    return await retry(
        f"Temporal at {settings.temporal_address}", settings.startup_seconds_max,
        partial(connect_temporal_once, settings, connection, keys), (NotConnected, RPCError),
    )  # fmt: skip


async def connect_temporal_once(
    settings: Settings, connection: TemporalConnection, keys: PayloadKeys
) -> TemporalClient:
    """A client with these credentials, which Temporal accepts. Raises `NotConnected`, `RPCError`."""
    try:
        return await TemporalClient.connect(
            connection.address,
            namespace=settings.temporal_namespace,
            tls=_tls_config(connection),
            api_key=connection.api_key,
            data_converter=encrypting_converter(keys),
            header_codec_behavior=HeaderCodecBehavior.CODEC,
            interceptors=[*_interceptors(), HeaderEncryption(keys, settings.temporal_namespace)],
        )
    except RuntimeError as error:
        raise NotConnected(explain_failure(str(error), connection)) from error


def ask_nats(connection: NatsClient) -> Question:
    """Whether the connection to NATS is there; the client pings its server."""

    async def ask() -> None:
        if not connection.is_connected:
            raise NotConnected("NATS is being connected anew")

    return ask


def ask_temporal(client: Callable[[], TemporalClient]) -> Question:
    """Whether Temporal's frontend answers and serves workflows. `client` returns the one in use."""

    async def ask() -> None:
        timeout = timedelta(seconds=ANSWER_SECONDS_MAX)
        if not await client().service_client.check_health(timeout=timeout):
            raise NotConnected("Temporal answers and does not serve")

    return ask


class NotConnected(Exception):
    """There is no connection to Temporal, or to NATS; the message says why and, where that is known, what to do."""


_EXPLANATIONS = (
    ("NotValidForName", "its certificate is not for {name}; set BERTH_TEMPORAL_TLS_SERVER_NAME to a name that it has"),
    ("UnknownIssuer", "its certificate is of another authority; name that one in BERTH_TEMPORAL_CA_FILE"),
    ("InvalidCertificate(Expired", "its certificate has expired"),
    ("CertificateRequired", "it requires a client certificate: BERTH_TEMPORAL_TLS_CERTIFICATE_FILE"),
    ("received fatal alert", "it refuses the client certificate"),
    (
        "tls handshake eof",
        "it has no TLS, or ended the handshake; BERTH_TEMPORAL_TLS=false is for a server without TLS",
    ),
    ("InvalidContentType", "it has no TLS; BERTH_TEMPORAL_TLS=false is for a server without TLS"),
    ("Unauthenticated", "it refuses the API key of BERTH_TEMPORAL_API_KEY_FILE"),
    ("PermissionDenied", "it refuses the API key of BERTH_TEMPORAL_API_KEY_FILE, or the client certificate"),
)
"""What the text of the SDK's error contains, and what it means."""
_ENDED = ("connection closed", "ConnectionReset", "BrokenPipe")


def explain_failure(error: str, connection: TemporalConnection) -> str:
    """The SDK's text, after a sentence that explains it if the cause is known. Pure."""
    for sign, explanation in _EXPLANATIONS:
        if sign in error:
            return f"{explanation.format(name=connection.server_name)} ({error})"
    if any(sign in error for sign in _ENDED):
        wanted = "TLS (BERTH_TEMPORAL_TLS)" if connection.tls is None else "another client certificate"
        return f"it ended the connection; it may require {wanted} ({error})"
    return error


def _tls_config(connection: TemporalConnection) -> TLSConfig | bool:
    if connection.tls is None:
        return False
    return TLSConfig(
        server_root_ca_cert=connection.ca,
        domain=None if connection.server_name == host_of(connection.address) else connection.server_name,
        client_cert=connection.certificate,
        client_private_key=connection.key,
    )


def _interceptors() -> list[Interceptor]:
    """Continue the trace in which a workflow was started, if tracing is enabled."""
    tracer = tracing.tracer()
    if tracer is None:
        return []
    from temporalio.contrib.opentelemetry import TracingInterceptor

    return [TracingInterceptor(tracer)]
