"""The credentials of requests: an API key, an OIDC token, or a function that is called for one before every attempt."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from ipaddress import ip_address
from typing import cast
from urllib.parse import urlsplit

import httpx

from berth.client.access_errors import InsecureAddress
from berth.client.errors import Unauthenticated

KeySource = str | Callable[[], str]
AsyncKeySource = str | Callable[[], str | Awaitable[str]]


def require_sendable(key: str) -> str:
    """The key, if a header can carry it. Raises `Unauthenticated`."""
    if not key or not (key.isascii() and key.isprintable()):
        raise Unauthenticated("the API key has characters that no API key has", code="unauthenticated")
    return key


def require_confidential(address: str) -> None:
    """Return if a key sent to `address` crosses no network unencrypted. Raises `InsecureAddress`."""
    parts = urlsplit(address)
    if parts.scheme.lower() == "http" and not _is_loopback(parts.hostname or ""):
        raise InsecureAddress(
            f"{address} is neither https:// nor a loopback address, so the key would cross the network unencrypted;"
            " use https://, or allow it (insecure_http, --insecure-http, BERTH_INSECURE_HTTP)",
            code="insecure_address",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class AskedKey(httpx.Auth):
    """Asks for the key before every attempt, so that a token can be renewed. What the function raises is passed on."""

    def __init__(self, ask: Callable[[], str | Awaitable[str]]) -> None:
        self._ask = ask

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the key into one request."""
        yield _with_key(request, cast(str, self._ask()))

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Put the key into one request; the function may be a coroutine's."""
        asked = self._ask()
        yield _with_key(request, await asked if inspect.isawaitable(asked) else asked)


def _with_key(request: httpx.Request, key: str) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {require_sendable(key)}"
    return request
