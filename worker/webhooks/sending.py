"""Sends one signed POST to a webhook and returns the outcome, within bounds of time and bytes."""

from __future__ import annotations

import asyncio
import email.utils
import ssl
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import httpcore

from orchestrator.webhooks.addresses import WebhookUrl, read_webhook_url
from orchestrator.webhooks.rules import EXCERPT_LENGTH_MAX, Attempt
from orchestrator.webhooks.signatures import signature_header
from worker.webhooks.connections import AddressBackend, AnswerTooLong
from worker.webhooks.destinations import DestinationRefused, Resolve, choose_addresses

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
USER_AGENT = "Berth-Webhooks/1"
EXCERPT_SECONDS = 1.0
"""How long to read the response's body; only the status decides the outcome."""
CLOSING_SECONDS = 4.0
"""How long closing the connection may take."""
HEADER_LENGTH_MAX = 100
_TRANSPORT_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
RETRY_AFTER_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and Retry-After of a response, and the beginning of its body."""

    status: int
    retry_after: str
    excerpt: str | None


@dataclass(frozen=True, slots=True)
class Message:
    """A delivery: the same id and body at every attempt, signed again with each of `keys`.

    `attempted_at` is signed as its time: of the database's clock, because this process's may have stepped.
    """

    message_id: str
    body: bytes
    keys: Sequence[str]
    attempted_at: datetime


class Sender:
    """Sends to allowed destinations; no `ports`: to any port.

    Each attempt opens a new connection, so that a connection made for one host name is never reused for another at the same
    address.
    """

    def __init__(
        self,
        resolve: Resolve,
        *,
        timeout_seconds: float,
        http_allowed: bool,
        private_allowed: bool,
        ports: Collection[int],
        tls: ssl.SSLContext,
    ) -> None:
        self._resolve = resolve
        self._timeout_seconds = timeout_seconds
        self._http_allowed = http_allowed
        self._private_allowed = private_allowed
        self._ports = ports
        self._tls = tls

    async def send(self, url: str, message: Message) -> Attempt:
        """Send once and return the outcome. No behaviour of an endpoint or name server raises."""
        began = time.monotonic()
        answer: Answer | None = None
        error: str | None = None
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                place = read_webhook_url(url)
                if place.scheme == "http" and not self._http_allowed:
                    raise DestinationRefused("http")
                if self._ports and place.port not in self._ports:
                    raise DestinationRefused("port")
                addresses = await choose_addresses(
                    self._resolve, place.host, place.port, private_allowed=self._private_allowed
                )
                answer = await self._post(place, addresses, message, limit)
        except TimeoutError:
            error = "timeout"
        except DestinationRefused as refused:
            error = str(refused)
        except AnswerTooLong:
            error = "answer_too_long"
        except (*_TRANSPORT_ERRORS, ValueError, OSError) as trouble:
            error = _name_of(trouble)
        duration_ms = int((time.monotonic() - began) * 1000)
        if answer is None:
            return Attempt(duration_ms, error=error)
        asked = _retry_after(answer.retry_after) if answer.status in RETRY_AFTER_STATUSES else None
        return Attempt(duration_ms, answer.status, answer.excerpt, retry_after_seconds=asked)

    async def _post(
        self, place: WebhookUrl, addresses: Sequence[str], message: Message, limit: asyncio.Timeout
    ) -> Answer:
        """Post to the first address that accepts a connection. `limit` covers the head of the response only."""
        timestamp = int(message.attempted_at.timestamp())
        headers = {
            "host": place.authority,
            "content-type": CONTENT_TYPE,
            "content-length": str(len(message.body)),
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            "connection": "close",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature_header(message.keys, message.message_id, timestamp, message.body),
        }
        for address in addresses[:-1]:
            try:
                return await self._post_to(place, address, headers, message.body, limit)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._post_to(place, addresses[-1], headers, message.body, limit)

    async def _post_to(
        self, place: WebhookUrl, address: str, headers: dict[str, str], body: bytes, limit: asyncio.Timeout
    ) -> Answer:
        # The URL keeps the host name for the Host header, SNI and certificate verification.
        url = httpcore.URL(
            scheme=place.scheme.encode(), host=place.host.encode(), port=place.port, target=place.target.encode()
        )
        async with (
            httpcore.AsyncConnectionPool(
                self._tls, max_keepalive_connections=0, network_backend=AddressBackend(address)
            ) as pool,
            pool.stream("POST", url, headers=list(headers.items()), content=body) as answer,
        ):
            limit.reschedule(asyncio.get_running_loop().time() + EXCERPT_SECONDS + CLOSING_SECONDS)
            headers_lower = {name.lower(): value for name, value in answer.headers}
            retry_after = headers_lower.get(b"retry-after", b"").decode("latin-1")
            return Answer(answer.status, retry_after, await _excerpt(answer))


async def _excerpt(answer: httpcore.Response) -> str | None:
    """The beginning of the body as printable text, as far as it arrives in time."""
    read = b""
    try:
        async with asyncio.timeout(EXCERPT_SECONDS):
            async for part in answer.aiter_stream():
                read += part
                if len(read) >= EXCERPT_LENGTH_MAX:
                    break
    except (TimeoutError, AnswerTooLong, *_TRANSPORT_ERRORS):
        pass
    text = read[:EXCERPT_LENGTH_MAX].decode(errors="replace")
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text) or None


def _retry_after(text: str) -> float | None:
    """Seconds from a Retry-After header in either form (RFC 9110, 10.2.3); None if absent or invalid."""
    text = text.strip()[:HEADER_LENGTH_MAX]
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # OverflowError: an excessive UTC offset
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _name_of(trouble: Exception) -> str:
    """The code of an error for the list of deliveries. The message is left out: it may contain secrets of the URL."""
    cause: BaseException | None = trouble
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "tls"
        cause = cause.__cause__ or cause.__context__
    names: tuple[tuple[type[Exception], str], ...] = (
        (httpcore.TimeoutException, "timeout"),
        (httpcore.ConnectError, "not_connected"),
        (httpcore.RemoteProtocolError, "not_http"),
        (httpcore.NetworkError, "connection_lost"),
    )
    return next((name for kind, name in names if isinstance(trouble, kind)), "not_sent")
