"""TLS to the public listener, before the node has an identity: the enrolment token carries the pin of the CA.

A token is `enrol2.<pin>.<secret>`. The pin is the SHA-256 (hex) of the public key (SubjectPublicKeyInfo) of the CA that the
public listener's certificate must have; `-`: the control plane knows none. The token goes only over TLS to a server of that CA.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_agent.problems import CannotStart

_TOKEN: Final = re.compile(r"enrol2\.(?P<pin>[0-9a-f]{64}|-)\.[A-Za-z0-9_-]{16,}")


@dataclass(frozen=True)
class ApiTls:
    """How to reach the public listener: over TLS that trusts `ca_pem` alone, or over plain HTTP on this machine (None)."""

    ca_pem: str | None

    def context(self) -> ssl.SSLContext:
        """The TLS context; for plain HTTP one that is not used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca_pem is not None:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the pinned CA may be an intermediate one
            context.load_verify_locations(cadata=self.ca_pem)
        return context


def pin_of(certificate: x509.Certificate) -> str:
    """The pin of a CA."""
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()


def tls_for_token(token: str, api_url: str, ca_file: Path | None, *, http_allowed: bool) -> ApiTls:
    """How to send this token to this address. Raises CannotStart if it must not be sent there."""
    parsed = _TOKEN.fullmatch(token)
    if parsed is None:
        raise CannotStart(
            "the enrolment token is not of this version's format (enrol2.<pin>.<secret>); issue another: berth node token"
        )
    if not _is_https(api_url):
        if not (http_allowed and _is_loopback(api_url)):
            raise CannotStart(
                f"the enrolment token is not sent to {api_url} without TLS; use an https:// address in BERTH_API_URL"
                " (BERTH_ENROLMENT_HTTP_ALLOWED permits http:// to this machine alone)"
            )
        return ApiTls(None)
    if parsed["pin"] == "-":
        raise CannotStart(
            "the enrolment token carries no pin: set BERTH_PUBLIC_CA_FILE of the public listener and issue another token"
        )
    for certificate in _candidates(ca_file):
        if pin_of(certificate) == parsed["pin"]:
            return ApiTls(certificate.public_bytes(Encoding.PEM).decode())
    where = f"of {ca_file}" if ca_file is not None else "that this machine knows; name its file in BERTH_API_CA_FILE"
    raise CannotStart(f"the enrolment token pins a CA ({parsed['pin'][:16]}...), and it is none {where}")


def _candidates(ca_file: Path | None) -> Iterator[x509.Certificate]:
    path = Path(certifi.where()) if ca_file is None else ca_file
    try:
        yield from x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CannotStart(f"the CA certificates of {path} cannot be read: {error}") from error


def _is_https(url: str) -> bool:
    try:
        return urlsplit(url).scheme == "https"
    except ValueError:
        return False


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
