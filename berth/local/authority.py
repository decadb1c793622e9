"""The development authority: a CA for nodes, the node listener's certificate, the keys of tasks, webhooks and payloads, the root.

For the local stack and tests. Everything is made once with `cryptography` and kept in files of mode 0600. Node
certificates themselves are issued by the orchestrator with this CA. EC P-256 (FIPS 186-5), X.509 v3 (RFC 5280);
the task key is Ed25519 (RFC 8032) in PKCS#8 PEM.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth.local.secret_files import write_secret
from node_agent.key_set import (
    KeySet,
    open_key_set,
    read_envelope,
    read_public_keys,
    root_keys,
    sign_key_set,
    task_key,
)

CA_DAYS = 3650
LISTENER_DAYS = 365
LISTENER_RENEW_DAYS = 30
SYMMETRIC_KEY_BYTES = 32
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Authority:
    """Where the authority's files are."""

    ca_certificate: Path
    ca_certificates: Path
    """Every node CA that is trusted; without a rotation the one that signs."""
    ca_key: Path
    deploy_ca_certificate: Path
    """The CA of deploy systems, with a separate key."""
    deploy_ca_key: Path
    listener_certificate: Path
    listener_key: Path
    console_certificate: Path
    """Of the public process's listener for consoles."""
    console_key: Path
    task_signing_key: Path
    task_verifying_keys: Path
    webhook_keys: Path
    root_key: Path
    root_keys: Path
    """The public keys of the root, which agents pin."""
    key_set: Path
    payload_keys: Path


def ensure_authority(directory: Path, trust_domain: str) -> Authority:
    """The authority in `directory`, made where missing; the listeners' certificates are renewed in time.

    A call that was cut short anywhere, or one of `name_listeners`, is completed by the next one.
    """
    files = Authority(
        ca_certificate=directory / "node-ca.pem",
        ca_certificates=directory / "node-ca.pem",
        ca_key=directory / "node-ca.key",
        deploy_ca_certificate=directory / "deploy-ca.pem",
        deploy_ca_key=directory / "deploy-ca.key",
        listener_certificate=directory / "node-listener.pem",
        listener_key=directory / "node-listener.key",
        console_certificate=directory / "console-listener.pem",
        console_key=directory / "console-listener.key",
        task_signing_key=directory / "task-signing.key",
        task_verifying_keys=directory / "task-verifying.pem",
        webhook_keys=directory / "webhook.keys",
        root_key=directory / "root.key",
        root_keys=directory / "root-public.pem",
        key_set=directory / "key-set.json",
        payload_keys=directory / "temporal-payload.keys",
    )
    if not files.ca_certificate.exists():
        _make_ca(files.ca_certificate, files.ca_key, f"{trust_domain} development node CA")
    if not files.deploy_ca_certificate.exists():
        _make_ca(files.deploy_ca_certificate, files.deploy_ca_key, f"{trust_domain} development deploy CA")
    if _is_due(files.listener_certificate, files.listener_key):
        _make_listener(files, "node listener", files.listener_certificate, files.listener_key)
    if _is_due(files.console_certificate, files.console_key):
        _make_listener(files, "console listener", files.console_certificate, files.console_key)
    if not files.webhook_keys.exists():
        write_secret(files.webhook_keys, _new_webhook_keys(files.task_signing_key))
    if not files.payload_keys.exists():
        write_secret(files.payload_keys, _lines([secrets.token_bytes(SYMMETRIC_KEY_BYTES)]))
    if not files.task_signing_key.exists():
        write_secret(files.task_signing_key, _private_pem(ed25519.Ed25519PrivateKey.generate()))
    if not files.task_verifying_keys.exists():
        write_secret(files.task_verifying_keys, _public_pem(files.task_signing_key))
    if not files.root_key.exists():
        write_secret(files.root_key, _private_pem(ed25519.Ed25519PrivateKey.generate()))
    if not files.root_keys.exists():
        write_secret(files.root_keys, _public_pem(files.root_key))
    sign_present_keys(files)
    return files


def sign_present_keys(files: Authority, *, deploy_cas: bool = True) -> None:
    """Sign the public task keys and the CAs of the files under the next serial; nothing if the key set has them.

    `deploy_cas`: also those of deploy systems, which processes before 0.3.0 refuse.
    """
    root = serialization.load_pem_private_key(files.root_key.read_bytes(), None)
    assert isinstance(root, ed25519.Ed25519PrivateKey), "ensure_authority made it"
    present = KeySet(
        serial=1,
        task_keys=[task_key(key) for key in read_public_keys(files.task_verifying_keys)],
        node_cas=_pem_texts(files.ca_certificates),
        deploy_cas=_pem_texts(files.deploy_ca_certificate) if deploy_cas else [],
    )
    if files.key_set.exists():
        stored = open_key_set(read_envelope(files.key_set.read_bytes()), root_keys([root.public_key()]))
        if stored == present.model_copy(update={"serial": stored.serial}):
            return
        present = present.model_copy(update={"serial": stored.serial + 1})
    write_secret(files.key_set, sign_key_set(present, root).model_dump_json() + "\n")


def _pem_texts(file: Path) -> list[str]:
    """The certificates of a file, each as PEM."""
    found = x509.load_pem_x509_certificates(file.read_bytes())
    return [one.public_bytes(serialization.Encoding.PEM).decode() for one in found]


def _new_webhook_keys(task_signing_key: Path) -> str:
    """A random key; then the one that earlier versions derived from the task signing key, so that what it sealed opens."""
    keys = [secrets.token_bytes(SYMMETRIC_KEY_BYTES)]
    if task_signing_key.exists():
        signing = serialization.load_pem_private_key(task_signing_key.read_bytes(), None)
        assert isinstance(signing, ed25519.Ed25519PrivateKey), "ensure_authority made it"
        derivation = HKDF(hashes.SHA256(), SYMMETRIC_KEY_BYTES, salt=None, info=b"berth: keys of webhooks")
        keys.append(derivation.derive(signing.private_bytes_raw()))
    return _lines(keys)


def _lines(keys: list[bytes]) -> str:
    """A file of symmetric keys (berth/process/key_files.py)."""
    return "".join(base64.b64encode(key).decode() + "\n" for key in keys)


def days_left(certificate: Path) -> float:
    """For how many more days a certificate file is valid."""
    until = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return (until - _now()) / datetime.timedelta(days=1)


def _is_due(certificate: Path, key: Path) -> bool:
    """Whether a listener needs a certificate: it has none, or not for long, or that of an earlier key.

    The key is written first: a process that was killed before the certificate has left the earlier one.
    """
    if not (certificate.exists() and key.exists()) or days_left(certificate) < LISTENER_RENEW_DAYS:
        return True
    held = serialization.load_pem_private_key(key.read_bytes(), None).public_key()
    return x509.load_pem_x509_certificate(certificate.read_bytes()).public_key() != held


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _private_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public_pem(private_key: Path) -> str:
    key = serialization.load_pem_private_key(private_key.read_bytes(), None).public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - CLOCK_SKEW)
        .not_valid_after(_now() + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def _make_ca(certificate_file: Path, key_file: Path, common_name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    certificate = (
        _begin(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_secret(key_file, _private_pem(key))
    write_secret(certificate_file, certificate.public_bytes(serialization.Encoding.PEM).decode())


def name_listeners(files: Authority, addresses: Sequence[str]) -> None:
    """Give the listeners for nodes and deploy systems a certificate that also names these addresses."""
    _make_listener(files, "node listener", files.listener_certificate, files.listener_key, addresses)


def _make_listener(
    files: Authority, name: str, certificate_file: Path, key_file: Path, addresses: Sequence[str] = ()
) -> None:
    ca = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    ca_key = serialization.load_pem_private_key(files.ca_key.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    ca_public = ca_key.public_key()
    key = ec.generate_private_key(ec.SECP256R1())
    numbers = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", *addresses)]
    names = [x509.DNSName("localhost"), *numbers]
    certificate = (
        _begin(_name(name), ca.subject, key.public_key(), LISTENER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_secret(key_file, _private_pem(key))
    write_secret(certificate_file, certificate.public_bytes(serialization.Encoding.PEM).decode())
