"""An authority with certificates for a syslog receiver and for its client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Files: the authority's certificate; certificate and key of the receiver and of the client."""

    authority: Path
    server: Path
    client: Path

    def server_context(self, *, client_required: bool) -> ssl.SSLContext:
        """As the receiver uses it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        if client_required:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context


def issue(directory: Path) -> Certificates:
    """Make them in this directory."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    authority = (
        _begun(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "authority.pem"
    path.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    server = _leaf(directory, "localhost", ExtendedKeyUsageOID.SERVER_AUTH, name, key)
    client = _leaf(directory, "berth", ExtendedKeyUsageOID.CLIENT_AUTH, name, key)
    return Certificates(path, server, client)


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def _leaf(
    directory: Path, host: str, use: x509.ObjectIdentifier, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey
) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        _begun(subject, issuer, key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    path = directory / f"{host}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path
