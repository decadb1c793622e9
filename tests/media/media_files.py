"""A small file with a placeholder, as the medium has one."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from node_agent.media.placeholder import CONFIGURATION_BYTES, PLACEHOLDER

AT = 64 * 2048
SIZE_BYTES = 3 * 2**20 + 2048


def write_certificate(certificate: Path, key: Path) -> None:
    """A certificate of 127.0.0.1 that signs itself."""
    now = datetime.datetime.now(datetime.UTC)
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "media")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(encoding, kind, serialization.NoEncryption()))


def common_medium(path: Path, size_bytes: int = SIZE_BYTES) -> bytes:
    """Write the file; its bytes."""
    content = os.urandom(AT) + PLACEHOLDER + os.urandom(size_bytes - AT - CONFIGURATION_BYTES)
    path.write_bytes(content)
    return content


def configuration(word: str = "one") -> bytes:
    """A machine's configuration, padded."""
    return f'{{"for":"{word}"}}'.encode().ljust(CONFIGURATION_BYTES)


def own(content: bytes, word: str = "one") -> bytes:
    """What a machine must read."""
    return content[:AT] + configuration(word) + content[AT + CONFIGURATION_BYTES :]
