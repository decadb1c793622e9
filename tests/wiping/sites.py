"""A node that signs wipe statements, the CA that issued its certificate, and the root that signed the key set."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node_agent.key_set import KeySet, KeySetEnvelope, root_keys, sign_key_set, task_key
from node_agent.wiping.build import agent_build
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wiping.statement import (
    SigningKey,
    WipePredicate,
    WipeStatement,
    lowest_level,
    make_statement,
    sign_statement,
    verdict_of,
)
from orchestrator.tasks.key_set_file import KeySetFile
from orchestrator.tasks.signing import TaskSigner

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
SUBJECT_NAMES, ISSUER_NAMES = x509.ObjectIdentifier("2.5.29.17"), x509.ObjectIdentifier("2.5.29.18")
HOUR, MINUTE = dt.timedelta(hours=1), dt.timedelta(minutes=1)


def name_of(text: str) -> x509.Name:
    """A distinguished name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def wiped(device: str = "nvme0", level: WipeLevel = WipeLevel.PURGE) -> DeviceWipe:
    """A proven wipe."""
    return DeviceWipe(
        device=device, kind="disk", serial="S1", method="sanitize", level=level, proven=True, checked={"samples": 64}
    )


def predicate_of(node_id: UUID, *devices: DeviceWipe, **members: Any) -> WipePredicate:
    """What a node found; `members` replace what is made up."""
    return WipePredicate(
        **{
            "allocation_id": uuid4(), "node_id": node_id, "node_epoch": 1, "task_id": uuid4(), "fence": 7,
            "driver": "noop", "agent": agent_build(), "ended_at": NOW, "hard_stopped": False, "devices": devices,
            "level": lowest_level(devices), "verdict": verdict_of(devices), **members,
        }
    )  # fmt: skip


def authority(name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """A CA that is valid from yesterday until tomorrow."""
    return (
        x509.CertificateBuilder()
        .subject_name(name_of(name)).issuer_name(name_of(name)).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )  # fmt: skip


def issued(
    uri: str, issuer: x509.Name, ca_key: ec.EllipticCurvePrivateKey, key: SigningKey, begins: dt.datetime, ends: dt.datetime,
    usage: x509.ObjectIdentifier, serial: int | None = None,
) -> str:  # fmt: skip
    """A certificate with this one URI, PEM."""
    return (
        x509.CertificateBuilder()
        .subject_name(name_of("node")).issuer_name(issuer).public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(ca_key, SHA256()).public_bytes(Encoding.PEM).decode()
    )  # fmt: skip


def crafted(own: str, key: Ed25519PrivateKey, fault: str) -> str:
    """A certificate of this key with the names of `own`, whose extensions cannot be read: `duplicate` or `name_type`, PEM."""
    known = x509.load_pem_x509_certificate(own.encode())
    other, content = (ISSUER_NAMES, b"\x30\x00") if fault == "duplicate" else (SUBJECT_NAMES, b"\x30\x02\xa3\x00")
    builder = (
        x509.CertificateBuilder()
        .subject_name(known.subject).issuer_name(known.issuer).public_key(key.public_key())
        .serial_number(known.serial_number).not_valid_before(known.not_valid_before_utc)
        .not_valid_after(known.not_valid_after_utc)
        .add_extension(x509.UnrecognizedExtension(other, content), critical=False)
    )  # fmt: skip
    if fault == "duplicate":
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(key, None).public_bytes(Encoding.DER)
    # The builder makes no second extension of a kind: it is given that kind's identifier afterwards.
    renamed = made.replace(b"\x06\x03\x55\x1d\x12", b"\x06\x03\x55\x1d\x11")
    return x509.load_der_x509_certificate(renamed).public_bytes(Encoding.PEM).decode()


@dataclass
class Site:
    """A root, a node CA, a CA of deploy systems, the control plane's key, and nodes with certificates."""

    root: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    ca_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    control_key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    deploy_ca_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.ca = authority("node CA", self.ca_key)
        self.deploy_ca = authority("deploy CA", self.deploy_ca_key)
        self.keys: dict[UUID, SigningKey] = {}
        self.certificates: dict[UUID, str] = {}

    def certificate(
        self, node_id: UUID, key: SigningKey, begins: dt.datetime = NOW - DAY, ends: dt.datetime = NOW + DAY,
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    ) -> str:  # fmt: skip
        """A node's certificate, PEM."""
        names = (f"spiffe://berth.test/node/{node_id}", self.ca.subject, self.ca_key)
        return issued(*names, key, begins, ends, usage)

    def deploy_certificate(
        self, node_id: UUID, deploy_epoch: int, key: SigningKey, begins: dt.datetime = NOW - MINUTE,
        ends: dt.datetime = NOW + HOUR,
    ) -> str:  # fmt: skip
        """A deploy system's certificate, PEM."""
        uri = f"spiffe://berth.test/node/{node_id}/deploy/{deploy_epoch}"
        return issued(
            uri, self.deploy_ca.subject, self.deploy_ca_key, key, begins, ends, ExtendedKeyUsageOID.CLIENT_AUTH
        )

    def enrol(self, node_id: UUID, url: str | None = None, key: SigningKey | None = None) -> None:
        """Give the node a key and a certificate, recorded in the database at `url` as the issuer does."""
        self.keys[node_id] = key or Ed25519PrivateKey.generate()
        self.certificates[node_id] = self.certificate(node_id, self.keys[node_id])
        if url is not None:
            serial = x509.load_pem_x509_certificate(self.certificates[node_id].encode()).serial_number
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
                    " values (%s, %s, 1, sha256('key'), now() - interval '1 day', now() + interval '1 day')",
                    (format(serial, "x"), node_id),
                )

    def sign(self, node_id: UUID, statement: WipeStatement) -> dict[str, Any]:
        """The statement in the node's signature."""
        return sign_statement(statement, self.keys[node_id], self.certificates[node_id]).model_dump(mode="json")

    def release_result(self, task: dict[str, Any], *devices: DeviceWipe, **members: Any) -> dict[str, Any]:
        """What the node of this row of `node_tasks` reports of a proven release; `members` replace those of the statement."""
        evidence = {"devices": [device.model_dump(mode="json") for device in devices]}
        known = {name: task[name] for name in ("allocation_id", "node_epoch", "fence")}
        predicate = predicate_of(task["node_id"], *devices, **{**known, "task_id": task["id"], **members})
        return {
            "released": True, "hard_stopped": False, "wiped": True, "leases_released": True, "evidence": evidence,
            "wipe_statement": self.sign(task["node_id"], make_statement(predicate, evidence)),
        }  # fmt: skip

    def key_set(self, **limits: Any) -> KeySetEnvelope:
        """The key set of the site; `limits` are those of the control plane's key."""
        named = task_key(self.control_key.public_key()).model_copy(update=limits)
        cas, deploy_cas = ([ca.public_bytes(Encoding.PEM).decode()] for ca in (self.ca, self.deploy_ca))
        content = KeySet(serial=3, task_keys=[named], node_cas=cas, deploy_cas=deploy_cas)
        return sign_key_set(content, self.root)

    @property
    def roots(self) -> dict[str, Any]:
        """What a reader pins."""
        return root_keys([self.root.public_key()])

    def signer(self, directory: Path) -> TaskSigner:
        """The control plane's signer, with the key set in a file."""
        file = directory / "key-set.json"
        file.write_text(self.key_set().model_dump_json())
        return TaskSigner(self.control_key, KeySetFile(file))
