"""Requests to the control plane: mutual TLS to the node listener, and the one unauthenticated call of enrolment.

Every failure is one of three named situations, because each wants something else done: `Unreachable` (try again later),
`CredentialsRefused` (this certificate is not accepted), `RequestRefused` (this request never will be).
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from node_agent.attestation.wire import AttestationChallenge, EnrolmentChallengeRequest
from node_agent.clock import ServerClock, boot_seconds
from node_agent.identity import IdentityStore, StoredIdentity
from node_agent.metrics import AgentMetrics
from node_agent.pinning import ApiTls
from node_agent.protocol import Credentials, EnrolRequest

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 15.0
ANSWER_BYTES_MAX = 32 * 2**20
"""More than the tasks of a full node, each with the largest user data."""
CONNECTIONS_MAX = 16
KEEP_ALIVE_SECONDS = 60.0

_CERTIFICATE_ALERTS = (
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
)

_JSON = {"content-type": "application/json"}

Answer = TypeVar("Answer", bound=BaseModel)


class Unreachable(Exception):
    """No usable answer: the network, TLS, a server error, or overload. Whether the request was done is unknown."""


class CredentialsRefused(Exception):
    """The server refuses this node's certificate, in TLS or with 401 or 403."""


class RequestRefused(Exception):
    """A definite 4xx: sending the same again will get the same."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


def tls_context(identity: StoredIdentity, store: IdentityStore, cas: Sequence[str]) -> ssl.SSLContext:
    """TLS that shows our certificate and trusts these CAs alone, not the system's. Raises ssl.SSLError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata="\n".join(cas))
    context.load_cert_chain(store.write_client_pem(identity))
    return context


class NodeConnection:
    """Keep-alive connections under the current identity; `use` moves to a new one without breaking what is in
    flight."""

    def __init__(
        self, store: IdentityStore, clock: ServerClock, metrics: AgentMetrics, node_api_url: str | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._configured_url = node_api_url
        self._tls: ssl.SSLContext | None = None
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._in_flight: Counter[httpx.AsyncHTTPTransport] = Counter()
        self.url = node_api_url or ""

    async def use(self, identity: StoredIdentity, cas: Sequence[str]) -> None:
        """From now on every request proves to be `identity` to a server of one of these CAs, on new connections."""
        self.url = (self._configured_url or identity.credentials.node_api_url).rstrip("/")
        limits = httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
        )
        # The transport alone: cookies, redirects and authentication, which a client adds, double the cost of a request.
        old = self._transport
        self._tls = tls_context(identity, self._store, cas)
        self._transport = httpx.AsyncHTTPTransport(verify=self._tls, limits=limits, trust_env=False)
        if old is not None and not self._in_flight[old]:
            await old.aclose()

    def tls(self) -> ssl.SSLContext:
        """The context of the present identity, for other connections to the control plane. Call `use` first."""
        assert self._tls is not None, "there is no identity yet"
        return self._tls

    async def get(self, path: str, params: list[tuple[str, str]], answer: type[Answer], wait_seconds: float) -> Answer:
        """GET that the server may hold for `wait_seconds`. Raises the module's three situations."""
        asked_at = boot_seconds()
        return self._understood(await self._request("GET", path, wait_seconds, params=params), answer, asked_at)

    async def fetch(self, path: str, bytes_max: int) -> bytes:
        """GET of a document as it comes, cut off after `bytes_max`. Raises the module's three situations."""
        return (await self._request("GET", path, 0.0, cut_at=bytes_max)).content

    async def post(self, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """POST of one message. Raises the module's three situations."""
        asked_at = boot_seconds()
        response = await self._request("POST", path, 0.0, content=_json(body), headers=_JSON)
        return self._understood(response, answer, asked_at)

    async def send(self, path: str, body: BaseModel) -> None:
        """POST of one message whose answer has no content. Raises the module's three situations."""
        await self._request("POST", path, 0.0, content=_json(body), headers=_JSON)

    async def close(self) -> None:
        """Drop all connections."""
        if self._transport is not None:
            await self._transport.aclose()

    async def _request(
        self, method: str, path: str, wait_seconds: float, cut_at: int | None = None, **more: Any
    ) -> httpx.Response:
        transport = self._transport
        if transport is None:
            raise Unreachable("there is no identity yet")
        timeout = httpx.Timeout(ANSWER_SECONDS_MAX + wait_seconds, connect=CONNECT_SECONDS_MAX)
        request = httpx.Request(method, self.url + path, extensions={"timeout": timeout.as_dict()}, **more)
        self._in_flight[transport] += 1
        try:
            response = await transport.handle_async_request(request)
            return accepted(await _read(response, cut_at))
        except Unreachable:
            self._metrics.requests_failed.labels(path.rsplit("/", 1)[-1]).inc()
            raise
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            self._metrics.requests_failed.labels(path.rsplit("/", 1)[-1]).inc()
            if _is_certificate_alert(error):
                raise CredentialsRefused(f"TLS: {error}") from error
            raise Unreachable(f"{self.url}: {str(error) or type(error).__name__}") from error
        finally:
            self._in_flight[transport] -= 1
            if transport is not self._transport and not self._in_flight[transport]:
                del self._in_flight[transport]
                await transport.aclose()

    def _understood(self, response: httpx.Response, answer: type[Answer], asked_at: float) -> Answer:
        parsed = understood(response, answer)
        server_time = getattr(parsed, "server_time", None)
        if server_time is not None:
            self._clock.observe(server_time, boot_seconds() - asked_at)
        return parsed


async def _read(response: httpx.Response, cut_at: int | None) -> httpx.Response:
    """The response with its body as it was sent, not decompressed. Raises `Unreachable` if the body is too large to be cut."""
    content = bytearray()
    try:
        async for piece in response.aiter_raw():
            content += piece
            if cut_at is not None and len(content) >= cut_at:
                break
            if len(content) > ANSWER_BYTES_MAX:
                raise Unreachable(f"the response is larger than {ANSWER_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    return httpx.Response(response.status_code, content=bytes(content[:cut_at]))


def accepted(response: httpx.Response) -> httpx.Response:
    """`response` if it is a success; otherwise raises the situation that its status means."""
    status = response.status_code
    if status in (401, 403):
        raise CredentialsRefused(f"{status}: {response.text[:300]}")
    if status in (408, 409, 425, 429) or status >= 500:
        raise Unreachable(f"the server answered {status}: {response.text[:300]}")
    if not response.is_success:
        raise RequestRefused(status, response.text[:300])
    return response


def understood(response: httpx.Response, answer: type[Answer]) -> Answer:
    """The content of a successful response. Raises `Unreachable` if it is not what was asked for."""
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in found["loc"]) for found in error.errors()[:3])
        raise Unreachable(f"the server's answer is not {answer.__name__}: {fields}") from error


async def enrol(api_url: str, request: EnrolRequest, tls: ApiTls, path: str = "/api/v1/nodes/enroll") -> Credentials:
    """Trade a one-time token for an identity, on the public listener. Raises the module's three situations."""
    return await _ask(api_url, path, request, Credentials, tls)


async def challenge_enrolment(api_url: str, request: EnrolmentChallengeRequest, tls: ApiTls) -> AttestationChallenge:
    """A challenge for this node's TPM, on the public listener. Raises the module's three situations."""
    return await _ask(api_url, "/api/v1/nodes/enroll/challenge", request, AttestationChallenge, tls)


async def _ask(api_url: str, path: str, request: BaseModel, answer: type[Answer], tls: ApiTls) -> Answer:
    async with httpx.AsyncHTTPTransport(verify=tls.context(), trust_env=False) as transport:
        asked = httpx.Request(
            "POST", api_url.rstrip("/") + path, content=_json(request), headers=_JSON,
            extensions={"timeout": httpx.Timeout(ANSWER_SECONDS_MAX).as_dict()},
        )  # fmt: skip
        try:
            response = await _read(await transport.handle_async_request(asked), None)
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(f"{api_url}: {str(error) or type(error).__name__}") from error
        return understood(accepted(response), answer)


async def ask_time(api_url: str, ca_file: Path | None) -> datetime | None:
    """The public listener's clock, from the problem document with which it answers a GET of the enrolment path; None if it
    cannot be had. It is not authenticated: use it to evaluate this node's certificate, never a task."""
    verify = True if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
    base_url, timeout = api_url.rstrip("/"), CONNECT_SECONDS_MAX
    async with httpx.AsyncClient(base_url=base_url, verify=verify, trust_env=False, timeout=timeout) as client:
        try:
            document = (await client.get("/api/v1/nodes/enroll")).json()
            return datetime.fromisoformat(document["server_time"])
        except (httpx.HTTPError, OSError, ValueError, TypeError, KeyError):
            return None


def _json(body: BaseModel) -> str:
    return body.model_dump_json(exclude_none=True)


def _is_certificate_alert(error: BaseException) -> bool:
    # An alert about *our* certificate; a server certificate that fails our check is CERTIFICATE_VERIFY_FAILED.
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).upper().replace(" ", "_")
        if "ALERT" in text and any(alert in text for alert in _CERTIFICATE_ALERTS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
