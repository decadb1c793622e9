"""Requests of a deploy system: enrolment over TLS that trusts the CA of the medium alone, then mutual TLS.

Key and certificate are in memory: OpenSSL reads them from a file without a name (memfd_create(2)).
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel

from node_agent.clock import ServerClock, boot_seconds
from node_agent.connection import (
    ANSWER_SECONDS_MAX,
    CONNECT_SECONDS_MAX,
    CredentialsRefused,
    Unreachable,
    accepted,
    understood,
)

ANSWER_BYTES_MAX = 1 << 20
ENDED = ("deploy_system_ended", "handed_over")
"""Code and reason of the refusal that proves a hand-over."""

Answer = TypeVar("Answer", bound=BaseModel)


def server_context(cas: Sequence[str]) -> ssl.SSLContext:
    """TLS that trusts these CAs alone, not the system's. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the CA of the medium may be an intermediate one
    context.load_verify_locations(cadata="\n".join(cas))
    return context


def client_context(cas: Sequence[str], certificate_pem: str, private_key_pem: str) -> ssl.SSLContext:
    """As `server_context`, with our certificate. Raises ssl.SSLError, OSError."""
    context = server_context(cas)
    file = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(file, f"{certificate_pem.rstrip()}\n{private_key_pem}".encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


class HandedOver(CredentialsRefused):
    """The control plane refuses this certificate from now on, as it has handed the machine over to its tenant."""


class DeployConnection:
    """Requests to one listener; each opens a new connection, as there are few."""

    def __init__(self, url: str, context: ssl.SSLContext, clock: ServerClock) -> None:
        self.url = url.rstrip("/")
        self._context = context
        self._clock = clock

    async def post(self, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """The answer to a message. Raises `Unreachable`, `HandedOver`, `CredentialsRefused`, `RequestRefused`."""
        content = body.model_dump_json(exclude_none=True)
        request = httpx.Request("POST", self.url + path, content=content, headers={"content-type": "application/json"})
        return await self._ask(request, answer, 0.0)

    async def get(self, path: str, params: list[tuple[str, str]], answer: type[Answer], wait_seconds: float) -> Answer:
        """The answer to a question that the server may hold for `wait_seconds`. Raises as `post`."""
        asked = httpx.Request("GET", self.url + path, params=httpx.QueryParams(tuple(params)))
        return await self._ask(asked, answer, wait_seconds)

    async def _ask(self, request: httpx.Request, answer: type[Answer], wait_seconds: float) -> Answer:
        timeout = httpx.Timeout(ANSWER_SECONDS_MAX + wait_seconds, connect=CONNECT_SECONDS_MAX)
        request.extensions = {"timeout": timeout.as_dict()}
        asked_at = boot_seconds()
        try:
            async with httpx.AsyncHTTPTransport(verify=self._context, trust_env=False) as transport:
                response = await transport.handle_async_request(request)
                content = await _read(response)
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(f"{self.url}: {str(error) or type(error).__name__}") from error
        if response.status_code == httpx.codes.UNAUTHORIZED and _ended(content) == ENDED:
            raise HandedOver("the machine is its tenant's")
        parsed = understood(accepted(httpx.Response(response.status_code, content=content)), answer)
        server_time = getattr(parsed, "server_time", None)
        if server_time is not None:
            self._clock.observe(server_time, boot_seconds() - asked_at)
        return parsed


def _ended(content: bytes) -> tuple[object, object] | None:
    """Code and reason of a refusal."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return (document.get("code"), document.get("reason")) if isinstance(document, dict) else None


async def _read(response: httpx.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > ANSWER_BYTES_MAX:
            raise Unreachable(f"the response is larger than {ANSWER_BYTES_MAX} bytes")
    return bytes(content)
