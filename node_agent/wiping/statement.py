"""The wipe statement: what a node found when it released an allocation, signed with the node's key. Types, signing, verification.

The statement about a machine that a site wipes is the deploy system's, signed with the key of its certificate of minutes.

An in-toto Statement v1 (in-toto.io/Statement/v1) in a DSSE envelope (see `node_agent.protocol`). The signature names the
certificate of the key, so that a reader with the node CA needs nothing else. The signature is Ed25519 (RFC 8032), or
ECDSA with SHA-256 from a node whose certificate is of an earlier Berth.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ConfigDict, Field, ValidationError, model_validator

from berth.process.json_objects import JsonObject
from node_agent.protocol import RESULT_BYTES_MAX, SLOT_INDEX_MAX, pre_authentication_encoding
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wiping.machine import MachineWipe
from node_agent.wire.fields import STORABLE, Exact, Instant, Truth, Whole

STATEMENT_PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://berth.example/wipe/v1"
DEVICES_MAX: Final = SLOT_INDEX_MAX + 1
CERTIFICATE_CHARACTERS_MAX: Final = 8_192

UNREADABLE_EXTENSIONS: Final = (
    x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError,
)  # fmt: skip
"""What reading an extension of a certificate raises. Those of x509 are no ValueErrors."""

SigningKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey
Rejection = Literal["malformed", "bad_signature", "other_node", "certificate_not_valid"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class StatementRejected(Exception):
    """A statement that proves nothing; `reason` is a word of `Rejection`."""

    def __init__(self, reason: Rejection, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Rejection = reason
        self.detail = detail


class DigestSet(Exact):
    """The digest of a subject."""

    sha256: Sha256


class StatementSubject(Exact):
    """What the statement is about: the allocation's evidence, or the proof of one device."""

    name: Annotated[str, Field(min_length=1, max_length=300, pattern=STORABLE)]
    digest: DigestSet


class AgentBuild(Exact):
    """The agent that looked: its version, and the SHA-256 over its modules (`node_agent/wiping/build.py`)."""

    version: Annotated[str, Field(min_length=1, max_length=64, pattern=STORABLE)]
    sha256: Sha256


class WipePredicate(Exact):
    """What the node found. `ended_at` is the control plane's time as the agent knows it.

    `level` is the lowest of all devices. `verdict` is `wiped` if there are devices and each is proven, `nothing_found` if the
    allocation had left nothing on the node. There is no verdict for less: a node does not sign a partial wipe.

    `machine`: of a machine that a deploy system wiped, which does not know how the machine was stopped: `hard_stopped` is null.
    """

    allocation_id: UUID
    node_id: UUID
    node_epoch: Whole
    task_id: UUID
    fence: Whole
    driver: Annotated[str, Field(max_length=32, pattern=STORABLE)]
    agent: AgentBuild
    ended_at: Instant
    hard_stopped: Truth | None
    devices: Annotated[list[DeviceWipe], Field(max_length=DEVICES_MAX)]
    level: WipeLevel | None
    verdict: Literal["wiped", "nothing_found"]
    # Left out otherwise: verifiers of earlier versions refuse unknown members.
    machine: MachineWipe | None = Field(None, exclude_if=lambda machine: machine is None)

    @model_validator(mode="after")
    def _claims_what_the_devices_prove(self) -> WipePredicate:
        if not all(device.proven for device in self.devices):
            raise ValueError("a statement names only devices whose wipe is proven")
        if len({device.device for device in self.devices}) != len(self.devices):
            raise ValueError("a device is named twice")
        if self.verdict != verdict_of(self.devices) or self.level != lowest_level(self.devices):
            raise ValueError("verdict and level are not those of the devices")
        if (self.machine is None) != (self.hard_stopped is not None):
            raise ValueError("hard_stopped is null of a machine, and of nothing else")
        if self.machine is not None and self.machine.disks_found != _count_disks(self.devices):
            raise ValueError("the devices are not the disks of the machine")
        return self


class WipeStatement(Exact):
    """The signed content."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    statement_type: Literal["https://in-toto.io/Statement/v1"] = Field(STATEMENT_TYPE, alias="_type")
    subject: Annotated[list[StatementSubject], Field(min_length=1, max_length=DEVICES_MAX + 1)]
    predicateType: Literal["https://berth.example/wipe/v1"] = PREDICATE_TYPE  # noqa: N815 - the standard's name
    predicate: WipePredicate

    @model_validator(mode="after")
    def _names_the_devices(self) -> WipeStatement:
        if self.subject[0].name != f"allocation/{self.predicate.allocation_id}":
            raise ValueError("the first subject is not the allocation")
        if self.subject[1:] != device_subjects(self.predicate.devices):
            raise ValueError("the subjects are not the devices")
        return self


class StatementSignature(Exact):
    """A DSSE signature with the certificate of its key (PEM). `keyid`: SHA-256 of the key's SubjectPublicKeyInfo, in hex."""

    keyid: Sha256
    sig: Annotated[str, Field(max_length=200)]
    certificate: Annotated[str, Field(max_length=CERTIFICATE_CHARACTERS_MAX)]


class StatementEnvelope(Exact):
    """A DSSE envelope around one `WipeStatement`."""

    payloadType: Literal["application/vnd.in-toto+json"] = STATEMENT_PAYLOAD_TYPE  # noqa: N815 - the standard's name
    payload: Annotated[str, Field(max_length=2 * RESULT_BYTES_MAX)]
    signatures: Annotated[list[StatementSignature], Field(min_length=1, max_length=1)]


@dataclass(frozen=True)
class OpenedStatement:
    """A statement whose signature holds, and the certificate of its key. The certificate's issuer is not verified."""

    statement: WipeStatement
    certificate: x509.Certificate
    payload: bytes

    @property
    def predicate(self) -> WipePredicate:
        """What the node found."""
        return self.statement.predicate

    @property
    def evidence_sha256(self) -> str:
        """The digest of the evidence of the release."""
        return self.statement.subject[0].digest.sha256


def verdict_of(devices: Sequence[DeviceWipe]) -> Literal["wiped", "nothing_found"]:
    """The verdict over devices that are all proven."""
    return "wiped" if devices else "nothing_found"


def lowest_level(devices: Iterable[DeviceWipe]) -> WipeLevel | None:
    """The lowest level of the devices; None without devices."""
    order = list(WipeLevel)
    return min((device.level for device in devices), key=order.index, default=None)


def _count_disks(devices: Sequence[DeviceWipe]) -> int | None:
    """How many disks the devices are, each with a serial of no other; None if they are not all disks."""
    serials = {device.serial for device in devices if device.kind == "disk" and device.serial is not None}
    return len(serials) if len(serials) == len(devices) else None


def digest_of(document: Any) -> str:
    """The SHA-256 of a JSON document with sorted members and no spaces, in hex."""
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(written.encode()).hexdigest()


def device_subjects(devices: Iterable[DeviceWipe]) -> list[StatementSubject]:
    """One subject for each device: the digest of its proof."""
    return [
        StatementSubject(
            name=f"device/{device.device}", digest=DigestSet(sha256=digest_of(device.model_dump(mode="json")))
        )
        for device in devices
    ]


def make_statement(predicate: WipePredicate, evidence: JsonObject) -> WipeStatement:
    """The statement about a release whose result has this `evidence`."""
    allocation = StatementSubject(
        name=f"allocation/{predicate.allocation_id}", digest=DigestSet(sha256=digest_of(evidence))
    )
    return WipeStatement(subject=[allocation, *device_subjects(predicate.devices)], predicate=predicate)


def sign_statement(statement: WipeStatement, key: SigningKey, certificate_pem: str) -> StatementEnvelope:
    """Wrap and sign with the node's key, whose certificate this is."""
    payload = statement.model_dump_json(by_alias=True, exclude_none=False).encode()
    signed = pre_authentication_encoding(STATEMENT_PAYLOAD_TYPE, payload)
    signature = key.sign(signed) if isinstance(key, Ed25519PrivateKey) else key.sign(signed, ec.ECDSA(SHA256()))
    named = StatementSignature(
        keyid=_key_digest(key.public_key()), sig=base64.b64encode(signature).decode(), certificate=certificate_pem
    )
    return StatementEnvelope(payload=base64.b64encode(payload).decode(), signatures=[named])


def open_statement(envelope: StatementEnvelope) -> OpenedStatement:
    """The statement, if the key of the named certificate signed it and the certificate is the node's and was valid then.

    The content is parsed only after its signature held. The certificate's issuer is not verified. Raises StatementRejected.
    """
    signature = envelope.signatures[0]
    try:
        certificate = x509.load_pem_x509_certificate(signature.certificate.encode())
        key = certificate.public_key()
        payload = base64.b64decode(envelope.payload, validate=True)
        _verify(key, base64.b64decode(signature.sig, validate=True), payload)
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise StatementRejected("bad_signature", "the key of the certificate did not sign the statement") from error
    except (ValueError, x509.InvalidVersion) as error:
        raise StatementRejected("malformed", "certificate, payload or signature cannot be read") from error
    if signature.keyid != _key_digest(key):
        raise StatementRejected("bad_signature", "keyid is not that of the certificate's key")
    try:
        statement = WipeStatement.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors()[0]
        raise StatementRejected("malformed", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _require_own_certificate(statement.predicate, certificate)
    return OpenedStatement(statement, certificate, payload)


def _verify(key: object, signature: bytes, payload: bytes) -> None:
    signed = pre_authentication_encoding(STATEMENT_PAYLOAD_TYPE, payload)
    if isinstance(key, Ed25519PublicKey):
        key.verify(signature, signed)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, signed, ec.ECDSA(SHA256()))
    else:
        raise UnsupportedAlgorithm("a node's key is Ed25519 or EC")


def _key_digest(key: Any) -> str:
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _require_own_certificate(predicate: WipePredicate, certificate: x509.Certificate) -> None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except UNREADABLE_EXTENSIONS as error:
        raise StatementRejected("other_node", "the certificate names no node") from error
    own, whose = f"/node/{predicate.node_id}", f"node {predicate.node_id}"
    if predicate.machine is not None:
        own, whose = (
            f"{own}/deploy/{predicate.machine.deploy_epoch}",
            f"deploy system {predicate.machine.deploy_epoch} of {whose}",
        )
    if len(uris) != 1 or not uris[0].startswith("spiffe://") or not uris[0].endswith(own):
        raise StatementRejected("other_node", f"the certificate is not that of {whose}")
    if not certificate.not_valid_before_utc <= predicate.ended_at <= certificate.not_valid_after_utc:
        raise StatementRejected("certificate_not_valid", "the certificate was not valid when the release ended")
