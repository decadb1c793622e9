"""Connections of one attempt: to the address that was looked at, and with a bound on what is read from it.

The bound holds whatever comes: a head that never ends, answers of 1xx without number, a body of gigabytes.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

READ_BYTES_MAX = 65_536
PART_BYTES_MAX = 16_384


class AnswerTooLong(Exception):
    """An endpoint has sent more than anybody reads, and no answer."""


class AddressBackend(httpcore.AsyncNetworkBackend):
    """Connects to one address, whatever name it is told."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """To that address, at this port."""
        made = await self._inner.connect_tcp(self._address, port, timeout, local_address, socket_options)
        return BoundedStream(made)


class BoundedStream(httpcore.AsyncNetworkStream):
    """Another stream, of which little is read."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._left = READ_BYTES_MAX

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What comes next. Raises `AnswerTooLong` behind the bound."""
        if self._left <= 0:
            raise AnswerTooLong
        part = await self._inner.read(min(max_bytes, PART_BYTES_MAX), timeout)
        self._left -= len(part)
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of it."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """It is over."""
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """The same, with what is inside the encryption counted."""
        return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """What the other stream says of itself."""
        return self._inner.get_extra_info(info)
