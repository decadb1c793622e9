"""Temporal as it is deployed: the settings of a worker, the server's TLS context, and a search for the API key on the wire."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

ELSEWHERE = "127.1"
"""The loopback address in a form (inet_aton(3)) that is not recognized as one: so it counts as another machine."""
API_KEY = "secret" * 4
HUFFMAN = {"s": "01000", "e": "00101", "c": "00100", "r": "101100", "t": "01001"}
"""How HTTP/2 writes these letters in a header (RFC 7541, appendix B)."""


def server_context(secrets: Path, *, client_certificates: bool) -> ssl.SSLContext:
    """What the deployment's Temporal uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets / "temporal_certificate.pem", secrets / "temporal_key.pem")
    context.set_alpn_protocols(["h2"])
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(secrets / "server_ca_certificate.pem")
    return context


def deployed(secrets: Path, **changed: Any) -> dict[str, Any]:
    """The settings of the deployment's worker; its name for Temporal is not one of this machine's."""
    return {
        "temporal_ca_file": secrets / "server_ca_certificate.pem",
        "temporal_tls_certificate_file": secrets / "temporal_client_certificate.pem",
        "temporal_tls_key_file": secrets / "temporal_client_key.pem",
        "temporal_tls_server_name": "temporal",
        "temporal_api_key_file": secrets / "api_key",
        **changed,
    }


def holds_api_key(content: bytes, key: str = API_KEY) -> bool:
    """Whether the key is in what was sent, also as HTTP/2 packs it."""
    bits = "".join(f"{byte:08b}" for byte in content)
    return key.encode() in content or "".join(HUFFMAN[letter] for letter in key) in bits
