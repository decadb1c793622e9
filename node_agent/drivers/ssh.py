"""Is there really an SSH server, with the right key? Asked as a client would: exchange keys, check the host key's
signature.

Just the first round of the SSH transport (RFC 4253 §4.2, §7, §8 with curve25519-sha256 of RFC 8731 and ssh-ed25519 of
RFC 8709), so that the agent, which is trusted, need not import a whole SSH implementation.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from collections.abc import Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

BANNER = b"SSH-2.0-berth_probe"
KEXINIT, ECDH_INIT, ECDH_REPLY = 20, 30, 31
PACKET_BYTES_MAX = 35_000
GREETING_BYTES_MAX, GREETING_LINES_MAX = 4_096, 32
GREETING_SECONDS = 5.0
"""How long a guest may take to greet: under emulation and load it takes a second."""
OFFERED = (
    b"curve25519-sha256", b"ssh-ed25519", b"aes128-ctr", b"aes128-ctr", b"hmac-sha2-256", b"hmac-sha2-256",
    b"none", b"none", b"", b"",
)  # fmt: skip


class NotReady(Exception):
    """No SSH server with the expected host key answers."""


def new_host_key() -> tuple[bytes, str]:
    """A new Ed25519 host key: the private one as OpenSSH PEM, the public one as `ssh-ed25519 AAAA...`."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), _public_line(key.public_key())


def read_host_key(private_key: bytes) -> str:
    """The public line of a host key. Raises ValueError."""
    key = load_ssh_private_key(private_key, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the host key is not an Ed25519 key")
    return _public_line(key.public_key())


async def check_ssh(host: str, port: int, host_key: str | None, seconds_max: float) -> str:
    """Exchange keys with `host`:`port`, which proves that the server holds the private key of `host_key`, or of the one that
    it shows if that is None; returns the public line. Raises NotReady."""
    try:
        async with asyncio.timeout(seconds_max):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                expected = None if host_key is None else base64.b64decode(host_key.split()[1])
                return _public_line(await _exchange(reader, writer, expected))
            finally:
                writer.close()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError, InvalidSignature) as error:
        raise NotReady(f"SSH at {host}:{port}: {str(error) or type(error).__name__}") from error


async def greets(host: str, port: int, seconds_max: float) -> bool:
    """Whether something at `host`:`port` greets as an SSH server does (RFC 4253 §4.2), within its first lines."""
    try:
        async with asyncio.timeout(seconds_max):
            reader, writer = await asyncio.open_connection(host, port, limit=GREETING_BYTES_MAX)
            try:
                for _ in range(GREETING_LINES_MAX):
                    line = await reader.readline()
                    if line.startswith(b"SSH-"):
                        return True
                    if not line:
                        return False
            finally:
                writer.close()
    except (TimeoutError, OSError, ValueError):
        return False
    return False


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expected_key: bytes | None
) -> Ed25519PublicKey:
    own_kexinit = bytes([KEXINIT]) + os.urandom(16) + b"".join(_string(names) for names in OFFERED) + bytes(5)
    ephemeral = X25519PrivateKey.generate()
    own_point = ephemeral.public_key().public_bytes_raw()
    writer.write(BANNER + b"\r\n" + _packet(own_kexinit) + _packet(bytes([ECDH_INIT]) + _string(own_point)))
    banner = (await reader.readline()).rstrip(b"\r\n")
    if not banner.startswith(b"SSH-2.0-"):
        raise ValueError(f"it says {banner[:80]!r}")
    kexinit = await _read_packet(reader, KEXINIT)
    reply = await _read_packet(reader, ECDH_REPLY)
    key, point, signature = _strings(reply[1:], 3)
    if expected_key not in (None, key):
        raise ValueError("it shows another host key")
    secret = ephemeral.exchange(X25519PublicKey.from_public_bytes(point))
    hashed = b"".join(_string(part) for part in (BANNER, banner, own_kexinit, kexinit, key, own_point, point))
    _, raw_key = _strings(key, 2)
    _, raw_signature = _strings(signature, 2)
    digest = hashlib.sha256(hashed + _string(_positive(secret))).digest()
    shown = Ed25519PublicKey.from_public_bytes(raw_key)
    shown.verify(raw_signature, digest)
    return shown


async def _read_packet(reader: asyncio.StreamReader, kind: int) -> bytes:
    length, padding = struct.unpack(">IB", await reader.readexactly(5))
    if not padding + 1 < length <= PACKET_BYTES_MAX:
        raise ValueError("its packets make no sense")
    payload = (await reader.readexactly(length - 1))[: length - 1 - padding]
    if payload[0] != kind:
        raise ValueError(f"it sends message {payload[0]}, not {kind}")
    return payload


def _packet(payload: bytes) -> bytes:
    padding = 8 - (len(payload) + 5) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack(">IB", len(payload) + 1 + padding, padding) + payload + bytes(padding)


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _strings(content: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        if len(content) < 4 or len(content) < 4 + (length := int.from_bytes(content[:4], "big")):
            raise ValueError("its answer is cut short")
        yield content[4 : 4 + length]
        content = content[4 + length :]


def _positive(secret: bytes) -> bytes:
    # An mpint is big-endian without leading zeros, and positive ones do not begin with a set bit (RFC 4251 §5).
    trimmed = secret.lstrip(b"\0")
    return b"\0" + trimmed if trimmed and trimmed[0] & 0x80 else trimmed


def _public_line(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
