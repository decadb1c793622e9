"""Statements that a deploy system of a machine must not get certified, by name, and why each is dropped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from node_agent.protocol import RESULT_BYTES_MAX
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wiping.statement import StatementEnvelope, WipeStatement, device_subjects, open_statement
from node_agent.wire.deploy_enrolment import DeployResultReport
from tests.sites.renting.machine_key import MachineKey, Statement
from tests.wiping.sites import crafted, issued


def altered(**members: Any) -> Callable[[Statement], Statement]:
    """A statement of the deploy system's key that says something else."""

    def change(statement: Statement) -> Statement:
        predicate = {**statement["predicate"], **members}
        first = {**statement["subject"][0], "name": f"allocation/{predicate['allocation_id']}"}
        return {**statement, "predicate": predicate, "subject": [first, *statement["subject"][1:]]}

    return change


def with_devices(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Statement], Statement]:
    """A statement about other devices, and consistent in itself."""

    def changed(statement: Statement) -> Statement:
        devices = [DeviceWipe.model_validate(one) for one in change(statement["predicate"]["devices"])]
        order = list(WipeLevel)
        predicate = {
            **statement["predicate"], "devices": [one.model_dump(mode="json") for one in devices],
            "level": min((one.level for one in devices), key=order.index).value,
            "machine": {**statement["predicate"]["machine"], "disks_found": len(devices)},
        }  # fmt: skip
        subjects = [one.model_dump(mode="json") for one in device_subjects(devices)]
        return {**statement, "predicate": predicate, "subject": [statement["subject"][0], *subjects]}

    return changed


def of_machine(**members: Any) -> Callable[[Statement], Statement]:
    """A statement that says something else of the machine."""
    return lambda statement: altered(machine={**statement["predicate"]["machine"], **members})(statement)


def of_other_evidence(statement: Statement) -> Statement:
    """A statement about another report."""
    first = {**statement["subject"][0], "digest": {"sha256": "0" * 64}}
    return {**statement, "subject": [first, *statement["subject"][1:]]}


def broken(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
    """Signed by no key."""
    assert report.wipe_statement is not None
    signature = {**report.wipe_statement["signatures"][0], "sig": "AAAA"}
    return report.model_copy(update={"wipe_statement": {**report.wipe_statement, "signatures": [signature]}})


def of_another_certificate(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
    """Signed by another start of the deploy system of this epoch: with its own key, which the same CA has certified."""
    statement = key_statement(report)
    other = MachineKey(key.site)
    predicate = statement.predicate
    assert predicate.machine is not None
    other.certificate = key.site.deploy_certificate(predicate.node_id, predicate.machine.deploy_epoch, other.key)
    return other.with_statement(report, statement)


def _self_made(key: MachineKey, of: Ed25519PrivateKey) -> str:
    """A certificate of this key that no CA of ours has issued, with names, time and serial of the one that was."""
    own = x509.load_pem_x509_certificate(key.certificate.encode())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    time = own.not_valid_before_utc, own.not_valid_after_utc
    authority = ec.generate_private_key(ec.SECP256R1())
    return issued(uri, own.issuer, authority, of, *time, ExtendedKeyUsageOID.CLIENT_AUTH, own.serial_number)


def of_another_key(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
    """Signed with another key, whose self-made certificate has the serial of the one that was issued."""
    other = MachineKey(key.site)
    other.certificate = _self_made(key, other.key)
    assert other.serial == key.serial
    return other.with_statement(report, key_statement(report))


def of_a_self_made_certificate(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
    """Signed with the right key, whose self-made certificate has the serial of the one that was issued."""
    other = MachineKey(key.site, pem=key.pem)
    other.certificate = _self_made(key, key.key)
    return other.with_statement(report, key_statement(report))


def of_crafted(fault: str) -> Callable[[DeployResultReport, MachineKey], DeployResultReport]:
    """Signed with the right key, and a certificate whose extensions cannot be read."""

    def replaced(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
        other = MachineKey(key.site, pem=key.pem, certificate=crafted(key.certificate, key.key, fault))
        return other.with_statement(report, key_statement(report))

    return replaced


def key_statement(report: DeployResultReport) -> WipeStatement:
    """What the deploy system has signed."""
    return open_statement(StatementEnvelope.model_validate(report.wipe_statement)).statement


def signed_too_late(report: DeployResultReport, key: MachineKey) -> DeployResultReport:
    """At a time when the certificate was not valid any more."""
    late = altered(ended_at=(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)).isoformat())
    statement = key_statement(report).model_dump(mode="json", by_alias=True)
    return key.with_statement(report, WipeStatement.model_validate(late(statement)))


def oversized(report: DeployResultReport, _: MachineKey) -> DeployResultReport:
    """A statement above the bound."""
    return report.model_copy(update={"wipe_statement": {"payload": "x" * RESULT_BYTES_MAX}})


PURGED = with_devices(lambda devices: [{**one, "level": "purge", "method": "nvme_sanitize_crypto"} for one in devices])
FORGERIES: dict[str, dict[str, Any]] = {
    "other-allocation": {"altered": altered(allocation_id=str(uuid4()))},
    "other-task": {"altered": altered(task_id=str(uuid4()))},
    "other-fence": {"altered": altered(fence=1)},
    "other-node-epoch": {"altered": altered(node_epoch=99)},
    "a-disk-left-out": {"altered": with_devices(lambda devices: devices[:1])},
    "a-disk-more": {"altered": with_devices(lambda devices: [*devices, {**devices[0], "device": "disk S3", "serial": "S3"}])},
    "a-better-method": {"altered": PURGED},
    "tpm-cleared": {"altered": of_machine(tpm="cleared")},
    "variables-compared": {"altered": of_machine(uefi_variables={"removed": 0, "changed": 0})},
    "firmware-read": {"altered": of_machine(firmware={"versions": 1, "sha256": "0" * 64})},
    "other-evidence": {"altered": of_other_evidence},
    "after-its-certificate": {"replaced": signed_too_late},
    "bad-signature": {"replaced": broken},
    "other-certificate": {"replaced": of_another_certificate},
    "same-serial-other-key": {"replaced": of_another_key},
    "same-serial-same-key": {"replaced": of_a_self_made_certificate},
    "duplicate-extension": {"replaced": of_crafted("duplicate")},
    "unknown-kind-of-name": {"replaced": of_crafted("name_type")},
    "too-large": {"replaced": oversized},
    "no-statement": {"replaced": lambda report, _: report.model_copy(update={"wipe_statement": {"payload": "x"}})},
}  # fmt: skip


REASONS = {
    "a-disk-left-out": "other_machine", "a-disk-more": "other_machine", "a-better-method": "other_disks",
    "other-evidence": "other_disks", "tpm-cleared": "other_machine", "variables-compared": "other_machine",
    "firmware-read": "other_machine", "after-its-certificate": "certificate_not_valid", "bad-signature": "bad_signature",
    "other-certificate": "other_certificate", "same-serial-other-key": "other_certificate",
    "same-serial-same-key": "other_certificate", "duplicate-extension": "other_node",
    "unknown-kind-of-name": "other_node", "too-large": "too_large", "no-statement": "malformed",
}  # fmt: skip
"""Why each is dropped; the others: `other_task`."""
