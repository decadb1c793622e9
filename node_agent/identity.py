"""The node's identity: its key, its certificate and its trust anchors; made by enrolment, kept on disk, renewed in time.

`identity/` (0700) holds `credentials.json` (0600), replaced as a whole, so that key and certificate always belong
together; `pending-key.pem`, the key of an enrolment or renewal that has not been answered yet, so that asking again asks
for the same key; and `client.pem`, derived, because OpenSSL reads files.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from node_agent.durable_files import make_private_directory, write_durably
from node_agent.protocol import Credentials
from node_agent.wire.fields import Closed

log = structlog.get_logger("node_agent.identity")


class StoredIdentity(Closed):
    """The content of `credentials.json`. `token_sha256` identifies the enrolment token that was used."""

    credentials: Credentials
    private_key_pem: str
    token_sha256: str


@dataclass(frozen=True)
class Validity:
    """When the certificate begins, is to be renewed (half of its life), and ends. By the server's clock."""

    not_before: datetime
    renew_at: datetime
    not_after: datetime


def validity(certificate_pem: str) -> Validity:
    """Read the times of a certificate. Raises ValueError if it is none."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Validity(begins, begins + (ends - begins) / 2, ends)


def token_digest(token: str) -> str:
    """How a token is remembered: never itself."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_key_pem() -> str:
    """A new Ed25519 key (RFC 8032), PKCS#8 PEM: it authenticates the node and signs wipe statements."""
    key = ed25519.Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def request_pem(private_key_pem: str) -> str:
    """A certificate request (RFC 2986) that proves possession of the key. Its subject is ignored: the server names
    us."""
    key = load_pem_private_key(private_key_pem.encode(), password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey):  # EC: made by an earlier Berth
        raise ValueError("the node's key is neither an Ed25519 nor an EC key")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berth-node")])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return request.public_bytes(Encoding.PEM).decode()


def public_key_sha256(private_key_pem: str) -> bytes:
    """The SHA-256 of the key's SubjectPublicKeyInfo."""
    key = load_pem_private_key(private_key_pem.encode(), password=None).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


class IdentityStore:
    """The directory `identity/` of one agent."""

    def __init__(self, state_dir: Path) -> None:
        """Make the directory, private. Raises OSError."""
        self.directory = state_dir / "identity"
        self._credentials_file = self.directory / "credentials.json"
        self._pending_key_file = self.directory / "pending-key.pem"
        self._hardware_id_file = self.directory / "hardware-id"
        self.client_pem_file = self.directory / "client.pem"
        make_private_directory(self.directory)

    def hardware_id(self, configured: str | None) -> str:
        """The configured id, or one made once and kept."""
        if configured is not None:
            return configured
        if not self._hardware_id_file.exists():
            write_durably(self._hardware_id_file, f"hw-{uuid.uuid4()}".encode())
        return self._hardware_id_file.read_text().strip()

    def load(self) -> StoredIdentity | None:
        """The identity on disk; None when there is none or it is unreadable (then it is put aside, and said)."""
        if not self._credentials_file.exists():
            return None
        try:
            identity = StoredIdentity.model_validate_json(self._credentials_file.read_bytes())
            validity(identity.credentials.certificate_pem)
        except (ValidationError, ValueError) as error:
            aside = self._credentials_file.with_suffix(".corrupt")
            self._credentials_file.replace(aside)
            log.error("credentials_unreadable", put_aside=aside.name, error=str(error))
            return None
        return identity

    def pending_key(self) -> str:
        """The key for an enrolment or renewal: kept until one succeeds, so that a lost answer can be asked for again."""
        if not self._pending_key_file.exists():
            write_durably(self._pending_key_file, new_key_pem().encode())
        return self._pending_key_file.read_text()

    def save(self, identity: StoredIdentity) -> None:
        """Make `identity` the node's own. A crash leaves the old or the new one, never a mixture.

        A pending key stays until its own certificate is here: it may have one whose answer was lost.
        """
        write_durably(self._credentials_file, identity.model_dump_json().encode())
        if self._pending_key_file.exists() and self._pending_key_file.read_text() == identity.private_key_pem:
            self._pending_key_file.unlink()

    def write_client_pem(self, identity: StoredIdentity) -> Path:
        """The certificate and key in the one file that `ssl.SSLContext.load_cert_chain` wants."""
        content = identity.credentials.certificate_pem.rstrip() + "\n" + identity.private_key_pem
        write_durably(self.client_pem_file, content.encode())
        return self.client_pem_file
