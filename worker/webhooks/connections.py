"""Connections of one delivery attempt: to the checked address, with a bound on the bytes read.

The bound covers endless headers, any number of 1xx responses, and bodies of any size.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

READ_BYTES_MAX = 65_536
PART_BYTES_MAX = 16_384


class AnswerTooLong(Exception):
    """An endpoint sent more bytes than the bound without a complete response head."""


class AddressBackend(httpcore.AsyncNetworkBackend):
    """Connects to one address, whatever host name is requested."""

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
        """Connect to the address at `port`."""
        made = await self._inner.connect_tcp(self._address, port, timeout, local_address, socket_options)
        return BoundedStream(made)


class BoundedStream(httpcore.AsyncNetworkStream):
    """A stream from which at most `READ_BYTES_MAX` bytes are read."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._left = READ_BYTES_MAX

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read the next bytes. Raises `AnswerTooLong` at the bound."""
        if self._left <= 0:
            raise AnswerTooLong
        part = await self._inner.read(min(max_bytes, PART_BYTES_MAX), timeout)
        self._left -= len(part)
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write the whole buffer."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Start TLS; the bound counts decrypted bytes."""
        return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return the inner stream's extra information."""
        return self._inner.get_extra_info(info)
