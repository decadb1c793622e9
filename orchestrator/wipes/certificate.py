"""The wipe certificate as a document, and its verification with nothing but the root's public key. Pure.

A certificate has three parts, each signed by another key:

- `statement`: the node's, with the certificate of its key (node_agent/wiping/statement.py); of a machine that a site wipes, its
  deploy system's, whose certificate lasts minutes and is verified as of the statement's time;
- `countersignature`: the control plane's, over the digest of the statement and of the node's certificate before this one;
- `key_set`: the root's, over the CAs of nodes and deploy systems and the keys of the control plane (node_agent/key_set.py).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, get_args
from uuid import UUID

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import Field, ValidationError

from berth.process.json_objects import JsonObject
from node_agent.key_set import KEY_SET_BYTES_MAX, KeySet, KeySetEnvelope, KeySetRefused, open_key_set
from node_agent.protocol import RESULT_BYTES_MAX, Signature, pre_authentication_encoding
from node_agent.wiping.statement import (
    UNREADABLE_EXTENSIONS,
    OpenedStatement,
    Sha256,
    StatementEnvelope,
    StatementRejected,
    WipePredicate,
    WipeStatement,
    digest_of,
    open_statement,
)
from node_agent.wire.fields import Exact, Instant, Whole, first_error

COUNTERSIGNATURE_PAYLOAD_TYPE: Final = "application/vnd.berth.wipe-countersignature+json"
FORMAT: Final = "berth-wipe-certificate-v1"
CERTIFICATE_BYTES_MAX: Final = 4 * RESULT_BYTES_MAX + 2 * KEY_SET_BYTES_MAX

Refusal = Literal[
    "malformed", "key_set_missing", "key_set_untrusted", "node_untrusted", "statement_invalid", "countersignature_invalid",
    "other_statement", "other_allocation",
]  # fmt: skip
REFUSALS: Final[tuple[str, ...]] = get_args(Refusal)


class CertificateRefused(Exception):
    """A certificate that proves nothing; `reason` is a word of `REFUSALS`."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Refusal = reason
        self.detail = detail


class MachineFindings(Exact):
    """What the control plane found on a wiped machine: it compares firmware, which the deploy system only reads.

    `firmware`: `no_objection`: nothing that was read differs from the inspection before the tenancy, or from the model's list;
    `not_compared`: nothing was objected to, but there was no inspection before the tenancy, or no version was read.
    `findings`: codes of docs/reference/metal/runs.md, for which the machine was quarantined.
    """

    firmware: Literal["no_objection", "objected", "not_compared"]
    findings: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]], Field(max_length=64)]


class Countersigned(Exact):
    """What the control plane signs. `number` counts the node's certificates from 1; `previous_sha256` is that of the one before.

    The digest of a certificate is the SHA-256 of the JSON text of this content.
    """

    statement_sha256: Sha256
    allocation_id: UUID
    node_id: UUID
    number: Annotated[Whole, Field(ge=1)]
    previous_sha256: Sha256 | None
    countersigned_at: Instant
    # Left out of what is countersigned about another device than a whole machine, as earlier versions have it.
    machine: MachineFindings | None = Field(None, exclude_if=lambda machine: machine is None)


class CountersignatureEnvelope(Exact):
    """A DSSE envelope around one `Countersigned`."""

    payloadType: Literal["application/vnd.berth.wipe-countersignature+json"] = (  # noqa: N815 - the standard's name
        COUNTERSIGNATURE_PAYLOAD_TYPE
    )
    payload: Annotated[str, Field(max_length=4_096)]
    signatures: Annotated[list[Signature], Field(min_length=1, max_length=1)]


class WipeCertificate(Exact):
    """The document. `key_set` is the one in use when it was countersigned; null if the worker had none."""

    format: Literal["berth-wipe-certificate-v1"] = FORMAT
    statement: StatementEnvelope
    countersignature: CountersignatureEnvelope
    key_set: KeySetEnvelope | None


@dataclass(frozen=True)
class VerifiedCertificate:
    """What a certificate proves, every signature verified."""

    predicate: WipePredicate
    link: Countersigned
    sha256: str
    key_set_serial: int


def machine_claims(found: VerifiedCertificate) -> list[str] | None:
    """What the certificate says of a machine besides its disks, for a person; None of anything else. No more than was proven."""
    machine, link = found.predicate.machine, found.link.machine
    if machine is None or link is None:
        return None
    uefi, firmware = machine.uefi_variables, machine.firmware
    return [
        f"disks: all {machine.disks_found} that the deploy system found",
        f"TPM: {machine.tpm}",
        "UEFI variables: not compared" if uefi is None else (
            f"UEFI variables: {uefi.removed} removed, {uefi.changed} changed, raw store not erased"
        ),
        "firmware: not read" if firmware is None else f"firmware: {firmware.versions} versions read, {link.firmware}",
        *([f"findings: {', '.join(link.findings)}"] if link.findings else []),
        *([f"not read or compared as a whole: {', '.join(machine.gaps)}"] if machine.gaps else []),
    ]  # fmt: skip


def countersigned_payload(link: Countersigned) -> bytes:
    """The bytes that the control plane signs."""
    return link.model_dump_json().encode()


def repeats_result(statement: WipeStatement, result: JsonObject) -> bool:
    """Whether a statement says what the release result says: the same evidence, devices and kind of stop, and released."""
    evidence = result.get("evidence", {})
    devices = [device.model_dump(mode="json") for device in statement.predicate.devices]
    return (
        result.get("released") is True
        and result.get("hard_stopped") is statement.predicate.hard_stopped
        and devices == evidence.get("devices", [])
        and statement.subject[0].digest.sha256 == digest_of(evidence)
    )


def statement_digest(opened: OpenedStatement) -> str:
    """The SHA-256 of the statement's JSON text, in hex."""
    return hashlib.sha256(opened.payload).hexdigest()


def read_certificate(content: bytes) -> WipeCertificate:
    """Parse a document without trusting it. Raises CertificateRefused."""
    if len(content) > CERTIFICATE_BYTES_MAX:
        raise CertificateRefused("malformed", f"{len(content)} bytes; at most {CERTIFICATE_BYTES_MAX} are read")
    try:
        return WipeCertificate.model_validate_json(content)
    except ValidationError as error:
        raise CertificateRefused("malformed", first_error(error, whole="the document")) from error


def verify_certificate(
    certificate: WipeCertificate,
    allocation_id: UUID,
    roots: Mapping[str, Ed25519PublicKey],
    key_set: KeySetEnvelope | None = None,
) -> VerifiedCertificate:
    """Verify every signature from the root down, and that it is about this allocation. Raises CertificateRefused.

    `key_set` replaces the certificate's own, for example with a later one that no longer names a stolen key.
    """
    envelope = key_set or certificate.key_set
    if envelope is None:
        raise CertificateRefused("key_set_missing", "the certificate contains no key set; give the operator's")
    try:
        trusted = open_key_set(envelope, roots)
    except KeySetRefused as refused:
        raise CertificateRefused("key_set_untrusted", str(refused)) from refused
    try:
        opened = open_statement(certificate.statement)
    except StatementRejected as rejected:
        raise CertificateRefused("statement_invalid", rejected.detail) from rejected
    _require_node(opened, trusted)
    payload, link = _open_countersignature(certificate.countersignature, trusted)
    found = opened.predicate
    if link.statement_sha256 != statement_digest(opened):
        raise CertificateRefused("other_statement", "the control plane countersigned another statement")
    if (link.allocation_id, link.node_id) != (found.allocation_id, found.node_id):
        raise CertificateRefused("other_statement", "statement and countersignature name another allocation or node")
    if (link.machine is None) != (found.machine is None):
        raise CertificateRefused(
            "other_statement", "only a statement about a machine is countersigned with findings about it"
        )
    if found.allocation_id != allocation_id:
        raise CertificateRefused("other_allocation", f"the certificate is about allocation {found.allocation_id}")
    return VerifiedCertificate(found, link, hashlib.sha256(payload).hexdigest(), trusted.serial)


def _require_node(opened: OpenedStatement, trusted: KeySet) -> None:
    certificate = opened.certificate
    is_machine = opened.predicate.machine is not None
    cas, whose = (trusted.deploy_cas, "deploy system's") if is_machine else (trusted.node_cas, "node's")
    if not any(_issued_by(certificate, pem, opened.predicate.ended_at) for pem in cas):
        raise CertificateRefused("node_untrusted", f"no CA of the key set issued the {whose} certificate")
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except UNREADABLE_EXTENSIONS as error:
        raise CertificateRefused("node_untrusted", "the certificate is not one of a node") from error
    if list(usage) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        raise CertificateRefused("node_untrusted", "the certificate is not one of a node")


def _issued_by(certificate: x509.Certificate, authority_pem: str, at: datetime) -> bool:
    authority = x509.load_pem_x509_certificate(authority_pem.encode())
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return authority.not_valid_before_utc <= at <= authority.not_valid_after_utc


def _open_countersignature(envelope: CountersignatureEnvelope, trusted: KeySet) -> tuple[bytes, Countersigned]:
    signature = envelope.signatures[0]
    key = next((key for key in trusted.task_keys if key.key_id == signature.keyid), None)
    if key is None:
        raise CertificateRefused("countersignature_invalid", f"the key set has no key {signature.keyid}")
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
        signed = pre_authentication_encoding(envelope.payloadType, payload)
        key.key().verify(base64.b64decode(signature.sig, validate=True), signed)
        link = Countersigned.model_validate_json(payload)
    except (InvalidSignature, ValueError) as error:
        raise CertificateRefused("countersignature_invalid", "the countersignature does not hold") from error
    late = key.not_after is not None and link.countersigned_at > key.not_after
    early = key.not_before is not None and link.countersigned_at < key.not_before
    if late or early:
        raise CertificateRefused("countersignature_invalid", f"key {key.key_id} was not valid when it signed")
    return payload, link
