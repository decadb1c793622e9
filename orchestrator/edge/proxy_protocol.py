"""The PROXY protocol, versions 1 and 2: a proxy's word on whose connection it passes on (haproxy.org, proxy-protocol.txt)."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final

from orchestrator.edge.connection_counts import Source

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
FIRST_BYTES: Final = len(SIGNATURE)
LINE_BYTES_MAX: Final = 107
"""Of version 1, with its end."""
BODY_BYTES_MAX: Final = 4096
"""Of version 2: addresses and extensions."""
_LOCAL, _PROXY, _INET, _INET6, _UNSPECIFIED = 0, 1, 1, 2, 0
_ADDRESS_BYTES: Final = {_INET: 4, _INET6: 16}

Read = Callable[[int], Awaitable[bytes]]
"""Reads exactly so many bytes. Raises EOFError."""


class HeaderRefused(Exception):
    """The connection does not begin with a PROXY header."""


async def read_source(read: Read) -> Source | None:
    """The caller's address and port; None if the proxy speaks for itself. Not a byte behind the header is read.

    Raises `HeaderRefused`, or what `read` raises.
    """
    first = await read(FIRST_BYTES)
    if first == SIGNATURE:
        return await _read_binary(read)
    if first.startswith(b"PROXY "):
        return await _read_line(first, read)
    raise HeaderRefused("the connection does not begin with a PROXY header")


async def _read_line(line: bytes, read: Read) -> Source | None:
    while not line.endswith(b"\r\n"):
        if len(line) >= LINE_BYTES_MAX:
            raise HeaderRefused("the PROXY header has no end")
        line += await read(1)
    words = line[:-2].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return None
    try:
        _, family, source, _, port, _ = words
        if ip_address(source).version != {"TCP4": 4, "TCP6": 6}[family]:
            raise ValueError(family)
        return str(ip_address(source)), int(port)
    except (ValueError, KeyError) as error:
        raise HeaderRefused("the PROXY header is not readable") from error


async def _read_binary(read: Read) -> Source | None:
    version_command, family_transport, length = struct.unpack("!BBH", await read(4))
    version, command, family = version_command >> 4, version_command & 15, family_transport >> 4
    if version != 2 or command not in (_LOCAL, _PROXY) or length > BODY_BYTES_MAX:
        raise HeaderRefused("the PROXY header is not of version 2")
    body = await read(length) if length else b""
    if command == _LOCAL or family not in _ADDRESS_BYTES:
        return None
    size = _ADDRESS_BYTES[family]
    if length < 2 * size + 4:
        raise HeaderRefused("the PROXY header is too short for its addresses")
    return str(ip_address(body[:size])), struct.unpack("!H", body[2 * size : 2 * size + 2])[0]
