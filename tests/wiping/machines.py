"""A machine whose deploy system signs wipe statements, and the certificates that a control plane makes of them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.key_set import KeySetEnvelope
from node_agent.wiping.machine_reports import devices_of, machine_of
from node_agent.wiping.statement import StatementEnvelope, WipePredicate, make_statement, sign_statement
from node_agent.wire.deploy_tasks import DiskIdentity, MetalDiskWipe, MetalWipeParameters, MetalWipeReport, WipeAttempt
from orchestrator.tasks.signing import TaskSigner
from orchestrator.wipes.certificate import (
    COUNTERSIGNATURE_PAYLOAD_TYPE,
    CountersignatureEnvelope,
    Countersigned,
    MachineFindings,
    WipeCertificate,
    countersigned_payload,
)
from tests.wiping.sites import NOW, Site, predicate_of

SITE, NODE, EPOCH = Site(), uuid4(), 7
KEY = Ed25519PrivateKey.generate()
CERTIFICATE = SITE.deploy_certificate(NODE, EPOCH, KEY)
DISKS = [
    MetalDiskWipe(
        serial=serial, size_bytes=8 << 30, name="sda", method=method, read_bytes=4096, nonzero_bytes_found=False,
        markers_found=0, attempts=[WipeAttempt(method=method, accepted=True)],
    )
    for serial, method in (("S1", "overwrite"), ("S2", "nvme_sanitize_crypto"))
]  # fmt: skip
ORDER = MetalWipeParameters(
    deploy_epoch=EPOCH, disks=[DiskIdentity(serial=d.serial, size_bytes=d.size_bytes) for d in DISKS]
)
REPORT = MetalWipeReport(disks=DISKS)
NOTHING_FOUND = MachineFindings(firmware="no_objection", findings=[])


def predicate(**members: Any) -> WipePredicate:
    """What the deploy system found."""
    devices = devices_of(REPORT)
    known = {"machine": machine_of(REPORT, ORDER), "hard_stopped": None, "driver": "redfish", **members}
    return predicate_of(NODE, *devices, **known)


PREDICATE = predicate()
ALLOCATION = PREDICATE.allocation_id


def signed(of: WipePredicate = PREDICATE, certificate: str = CERTIFICATE) -> StatementEnvelope:
    """A statement in the signature of the deploy system's key."""
    return sign_statement(make_statement(of, {}), KEY, certificate)


def certificate(
    of: StatementEnvelope | None = None, key_set: KeySetEnvelope | None = None, **link: Any
) -> WipeCertificate:
    """A certificate as the control plane makes it; `link` replaces members of what is countersigned."""
    envelope = of or signed()
    payload = base64.b64decode(envelope.payload)
    said = json.loads(payload)["predicate"]
    known = {
        "statement_sha256": hashlib.sha256(payload).hexdigest(), "allocation_id": said["allocation_id"],
        "node_id": said["node_id"], "number": 1, "previous_sha256": None, "countersigned_at": NOW, "machine": NOTHING_FOUND,
    }  # fmt: skip
    countersigned = countersigned_payload(Countersigned.model_validate({**known, **link}))
    signature = TaskSigner(SITE.control_key).countersign(COUNTERSIGNATURE_PAYLOAD_TYPE, countersigned)
    counter = CountersignatureEnvelope(payload=base64.b64encode(countersigned).decode(), signatures=[signature])
    return WipeCertificate(statement=envelope, countersignature=counter, key_set=key_set or SITE.key_set())
