"""A throwaway certificate authority for one test: a CA, the node listener's certificate, nodes' certificates."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

TRUST_DOMAIN = "test.invalid"


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    """Signs what the scripted control plane needs."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name("test CA"))
            .issuer_name(_name("test CA"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_server_files(self, directory: Path) -> tuple[Path, Path, Path]:
        """Certificate, key and CA files of a listener on 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        now = dt.datetime.now(dt.UTC)
        certificate = self._issue(
            key.public_key(), names, ExtendedKeyUsageOID.SERVER_AUTH, now - dt.timedelta(hours=1), dt.timedelta(days=1)
        )
        files = directory / "listener.pem", directory / "listener.key", directory / "ca.pem"
        files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        files[1].write_bytes(_pem(key))
        files[2].write_text(self.pem)
        return files

    def issue_node(self, csr_pem: str, node_id: UUID, begins: dt.datetime, life: dt.timedelta) -> str:
        """A node's certificate for the key that the request proves."""
        request = x509.load_pem_x509_csr(csr_pem.encode())
        assert request.is_signature_valid
        public_key = request.public_key()
        assert isinstance(public_key, ec.EllipticCurvePublicKey | Ed25519PublicKey)
        uri = x509.UniformResourceIdentifier(f"spiffe://{TRUST_DOMAIN}/node/{node_id}")
        names = x509.SubjectAlternativeName([uri])
        certificate = self._issue(public_key, names, ExtendedKeyUsageOID.CLIENT_AUTH, begins, life)
        return certificate.public_bytes(Encoding.PEM).decode()

    def _issue(
        self,
        public_key: ec.EllipticCurvePublicKey | Ed25519PublicKey,
        names: x509.SubjectAlternativeName,
        usage: x509.ObjectIdentifier,
        begins: dt.datetime,
        life: dt.timedelta,
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(_name("test"))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + life)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
