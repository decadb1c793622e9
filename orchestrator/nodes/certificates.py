"""The node CA: issues node certificates and reads the identity of a verified peer (DESIGN §8).

A node is what its certificate says: exactly one URI name, `spiffe://<trust domain>/node/<id>` (SPIFFE X.509-SVID §2 and
§5.2). Nothing that a signing request asks for besides its key is taken over.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.problems import Invalid, Unauthenticated

BACKDATE_SECONDS: Final = 60.0
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
CURVES: Final = (ec.SECP256R1, ec.SECP384R1)
# RFC 7468 §7, with its older label, and nothing before or after: a reader that stops elsewhere would see another request.
_ONE_REQUEST: Final = re.compile(
    r"\s*-----BEGIN ((?:NEW )?)CERTIFICATE REQUEST-----[A-Za-z0-9+/=\s]*-----END \1CERTIFICATE REQUEST-----\s*"
)

PeerCertificate = Mapping[str, Any]
"""A certificate as `ssl.SSLObject.getpeercert()` returns it."""
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey
AuthorityKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


class AuthoritySettings(Protocol):
    """What the authority is made from (orchestrator/nodes/issuer_settings.py has the descriptions)."""

    trust_domain: str
    node_ca_certificate_file: Path
    node_ca_key_file: Path
    node_certificate_seconds: float


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity in a verified certificate; the database decides on each call whether it still counts."""

    node_id: uuid.UUID
    serial: str


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A new certificate and what is recorded of it. `serial` is lower-case hex without leading zeros."""

    pem: str
    serial: str
    key_sha256: bytes
    authority_key_sha256: bytes
    not_before: datetime
    not_after: datetime


class NodeAuthority:
    """The node CA: its certificate, its key, and the trust domain it speaks for."""

    def __init__(
        self, certificate: x509.Certificate, key: AuthorityKey, trust_domain: str, lifetime_seconds: float
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._trust_domain = trust_domain
        self._lifetime = timedelta(seconds=lifetime_seconds)
        self.key_sha256: Final = key_digest(key.public_key())

    def issue(
        self, key: PublicKey, node_id: uuid.UUID, kind: str = "node", *, at: datetime | None = None
    ) -> IssuedCertificate:
        """A client certificate for this holder and key, from a minute before `at` (clocks differ) for the set lifetime."""
        uri = holder_uri(self._trust_domain, node_id, kind)
        return self.issue_for(key, uri, f"{kind} {node_id}", self._lifetime, at=at)

    def issue_deploy(
        self, key: PublicKey, node_id: uuid.UUID, deploy_epoch: int, seconds: float, *, at: datetime | None = None
    ) -> IssuedCertificate:
        """A client certificate for a deploy system; the authority is that of deploy systems."""
        name = f"deploy system {deploy_epoch} of {node_id}"[:64]
        uri = deploy_uri(self._trust_domain, node_id, deploy_epoch)
        return self.issue_for(key, uri, name, timedelta(seconds=seconds), at=at)

    def issue_for(
        self, key: PublicKey, uri: str, common_name: str, lifetime: timedelta, *, at: datetime | None = None
    ) -> IssuedCertificate:
        """A client certificate with this one URI, from a minute before `at` and at most as long as that of the CA.

        `at`: the database's clock, by which all deadlines are evaluated; None: this process's, where there is no database.
        """
        now = (at or datetime.now(UTC)).replace(microsecond=0)
        not_before = now - timedelta(seconds=BACKDATE_SECONDS)
        not_after = min(now + lifetime, self._certificate.not_valid_after_utc)
        identity = x509.UniformResourceIdentifier(uri)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.SubjectAlternativeName([identity]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(_DIGITAL_SIGNATURE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key()),  # type: ignore[arg-type]
                critical=False,
            )
            .sign(self._key, None if isinstance(self._key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        )
        return IssuedCertificate(
            pem=certificate.public_bytes(Encoding.PEM).decode(),
            serial=format(certificate.serial_number, "x"),
            key_sha256=key_digest(key),
            authority_key_sha256=self.key_sha256,
            not_before=not_before,
            not_after=not_after,
        )


_DIGITAL_SIGNATURE: Final = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


def load_pin(file: Path) -> str | None:
    """The SHA-256 (hex) of the public key of the one CA in the file; None for a file that holds nothing but comments.

    Raises OSError, or ValueError if the file is no CA's certificate or holds several.
    """
    ca = _read_public_ca(file)
    if ca is None:
        return None
    key = ca.public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def load_public_ca(file: Path) -> str | None:
    """The one CA in the file as PEM; None and exceptions as `load_pin`."""
    ca = _read_public_ca(file)
    return None if ca is None else ca.public_bytes(Encoding.PEM).decode()


def _read_public_ca(file: Path) -> x509.Certificate | None:
    content = file.read_bytes()
    if all(not line.strip() or line.startswith(b"#") for line in content.splitlines()):
        return None
    if content.count(b"-----BEGIN CERTIFICATE-----") != 1:
        raise ValueError(f"{file.name} must hold one certificate, that of the CA of the public listener")
    return _read_ca(file)


def _read_ca(file: Path) -> x509.Certificate:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise ValueError(f"{file.name} is not a CA's certificate")
    return certificate


def load_authority(settings: AuthoritySettings) -> NodeAuthority:
    """The authority with its key, which the issuer alone has.

    Raises OSError for unreadable files, ValueError for a certificate that is no CA's, or a key that is not its own.
    """
    return read_authority(
        settings.node_ca_certificate_file,
        settings.node_ca_key_file,
        settings.trust_domain,
        settings.node_certificate_seconds,
    )


class DeployAuthoritySettings(Protocol):
    """What the authority of deploy systems is made from (orchestrator/nodes/issuer_settings.py has the descriptions)."""

    trust_domain: str
    deploy_ca_certificate_file: Path | None
    deploy_ca_key_file: Path | None


def load_deploy_authority(settings: DeployAuthoritySettings) -> NodeAuthority | None:
    """The authority of deploy systems with its key; None where it is not configured. Raises as `load_authority`."""
    certificate_file, key_file = settings.deploy_ca_certificate_file, settings.deploy_ca_key_file
    if (certificate_file is None) != (key_file is None):
        raise ValueError("BERTH_DEPLOY_CA_CERTIFICATE_FILE and BERTH_DEPLOY_CA_KEY_FILE go together")
    if certificate_file is None or key_file is None:
        return None
    return read_authority(certificate_file, key_file, settings.trust_domain, 0.0)


def read_authority(certificate_file: Path, key_file: Path, trust_domain: str, lifetime_seconds: float) -> NodeAuthority:
    """The authority of these two files. Raises as `load_authority`."""
    certificate = _read_ca(certificate_file)
    key = load_pem_private_key(key_file.read_bytes(), password=None)
    if not isinstance(key, AuthorityKey):
        raise ValueError(f"{key_file.name} is not an EC, Ed25519 or RSA key")
    if key.public_key() != certificate.public_key():
        raise ValueError(f"{key_file.name} is not the key of {certificate_file.name}")
    return NodeAuthority(certificate, key, trust_domain, lifetime_seconds)


def read_signing_request(csr_pem: str) -> PublicKey:
    """The key that a PKCS#10 request (RFC 2986) proves to hold; everything else in it is ignored.

    Raises `Invalid` if it cannot be read, does not verify, or has a key of another type than we vouch for.
    """
    if not _ONE_REQUEST.fullmatch(csr_pem):
        raise _invalid_request("must be one certificate signing request in PEM, with nothing before or after it")
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode())
        key = request.public_key()
        verified = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion) as error:
        raise _invalid_request("is not a readable certificate signing request") from error
    if not verified:
        raise _invalid_request("is not signed by the key it names")
    if isinstance(key, rsa.RSAPublicKey) and RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        return key
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, CURVES):
        return key
    raise _invalid_request(
        f"must have an EC P-256 or P-384, Ed25519, or RSA key ({RSA_BITS_MIN} to {RSA_BITS_MAX} bits)"
    )


def proven_key(csr_pem: str, key_sha256: bytes) -> PublicKey | None:
    """The key of a recorded signing request, if the request proves to hold the key with this digest; else None."""
    try:
        key = read_signing_request(csr_pem)
    except Invalid:
        return None
    return key if key_digest(key) == key_sha256 else None


def key_digest(key: PublicKey) -> bytes:
    """The SHA-256 of the key's SubjectPublicKeyInfo (RFC 5280 §4.1), 32 bytes."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def node_uri(trust_domain: str, node_id: uuid.UUID) -> str:
    """The name of a node."""
    return holder_uri(trust_domain, node_id, "node")


def holder_uri(trust_domain: str, holder_id: uuid.UUID, kind: str) -> str:
    """The name of a holder of a certificate; `kind` is `node`, or `site` for an agent of a site."""
    return f"spiffe://{trust_domain}/{kind}/{holder_id}"


def deploy_uri(trust_domain: str, node_id: uuid.UUID, deploy_epoch: int) -> str:
    """The name of a deploy system."""
    return f"{node_uri(trust_domain, node_id)}/deploy/{deploy_epoch}"


def is_of_kind(peer: PeerCertificate | None, trust_domain: str, kind: str) -> bool:
    """Whether a verified certificate names a holder of this kind; `node_identity` then reads which."""
    prefix = f"spiffe://{trust_domain}/{kind}/"
    return any(name.startswith(prefix) for what, name in (peer or {}).get("subjectAltName", ()) if what == "URI")


def node_identity(peer: PeerCertificate | None, trust_domain: str, kind: str = "node") -> NodeIdentity:
    """The identity of the verified peer, from its certificate as `ssl.SSLObject.getpeercert()` returns it.

    The chain, the dates and the purpose (OpenSSL refuses a client certificate whose EKU lacks clientAuth) were checked
    by the TLS layer; `getpeercert` does not tell the EKU, and every certificate of our CA carries clientAuth and
    nothing else. Raises `Unauthenticated` without a certificate, or unless it has exactly one URI name: a node of ours.
    """
    if not peer:
        raise Unauthenticated("a node authenticates with a client certificate")
    names = [name for kind, name in peer.get("subjectAltName", ()) if kind == "URI"]
    prefix = f"spiffe://{trust_domain}/{kind}/"
    if len(names) != 1 or not names[0].startswith(prefix):
        raise Unauthenticated(f"the certificate names no {kind} of this trust domain")
    try:
        node_id = uuid.UUID(names[0].removeprefix(prefix))
        serial = format(int(peer["serialNumber"], 16), "x")
    except (ValueError, KeyError) as error:
        raise Unauthenticated(f"the certificate names no {kind} of this trust domain") from error
    if names[0] != holder_uri(trust_domain, node_id, kind):
        raise Unauthenticated(f"the certificate names no {kind} of this trust domain")
    return NodeIdentity(node_id, serial)


def _invalid_request(what: str) -> Invalid:
    return Invalid(f"csr_pem: {what}", errors=[{"field": "csr_pem", "message": what}])
