"""TLS to a BMC: one pinned leaf certificate and no CA, compared in the handshake, before a byte of a request is sent."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import ssl
from typing import Final
from urllib.parse import urlsplit

from node_agent.redfish.problems import CertificateChanged, Unreachable, ValueNotAllowed

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def pinned_context(certificate_sha256: str) -> ssl.SSLContext:
    """A context that ends each handshake in CertificateChanged unless the leaf has this SHA-256 (64 hex digits, any case).

    It reads no CA file and no variable of the environment. Names and expiry do not matter: the pin is the whole identity.
    """
    wanted = certificate_sha256.lower().replace(":", "")
    if not _SHA256.fullmatch(wanted):
        raise ValueNotAllowed("the certificate's fingerprint is not a SHA-256 of 64 hexadecimal digits")

    class Pinned(ssl.SSLObject):
        """A connection whose handshake includes the comparison."""

        def do_handshake(self) -> None:
            super().do_handshake()
            seen = hashlib.sha256(self.getpeercert(binary_form=True) or b"").hexdigest()
            if not hmac.compare_digest(seen, wanted):
                raise CertificateChanged(f"the BMC offers certificate {seen}, not the pinned {wanted}", seen)

    context = _unverified()
    context.sslobject_class = Pinned
    return context


async def read_certificate(url: str, timeout_seconds: float = 10) -> str:
    """The SHA-256 (hex) of the leaf certificate that a BMC offers, for an operator to compare and pin. Sends no credentials.

    Raises ValueNotAllowed for another URL than https://host[:port], Unreachable if there is no answer in time.
    """
    host, port = host_and_port(url)
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=_unverified())
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"no TLS connection to {host}:{port}: {type(error).__name__}") from error
    leaf = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return hashlib.sha256(leaf).hexdigest()


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of a BMC's URL. Raises ValueNotAllowed for anything but https://host[:port]."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if (
        not host
        or parts.scheme != "https"
        or parts.username
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        raise ValueNotAllowed("a BMC's URL must be https://host[:port], without a path or credentials")
    return host, port or 443


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
