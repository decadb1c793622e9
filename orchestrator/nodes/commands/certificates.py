"""Renew a node's certificate, on the strength of the one it still has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.certificate_waits import wait_for_certificate
from orchestrator.nodes.certificates import key_digest, read_signing_request
from orchestrator.nodes.refusals import AttestationProblem
from orchestrator.nodes.store import attestation, nodes
from orchestrator.nodes.store import certificates as node_certificates
from orchestrator.nodes.store.certificate_requests import record_request, request_of_link
from orchestrator.nodes.store.certificates import (
    CONFLICT,
    VALID_PER_NODE_MAX,
    Link,
    Standing,
    read_link,
    require_standing,
    suspend_for_identity_conflict,
)
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import IdentityConflict, OperationInProgress, TooManyCertificates
from orchestrator.tenants.principals import Actor, ActorKind


@dataclass(frozen=True, slots=True)
class Renewed:
    """The new certificate; the one it was asked with stays good until its own end, so a lost answer loses nothing."""

    node_id: UUID
    epoch: int
    certificate_pem: str
    server_time: datetime


@dataclass(frozen=True, slots=True)
class RenewalRequest:
    """A signing request, and the proof of the node's TPM if there is one."""

    csr_pem: str
    key_sha256: bytes
    attestation: attestation.Answer | None
    request_id: str


async def renew_certificate(
    context: Context, node_id: UUID, serial: str, *,
    csr_pem: str, answer: attestation.Answer | None, request_id: str, wait_seconds_max: float,
) -> Renewed:  # fmt: skip
    """The successor of the presented certificate, of the same epoch, for the key of the signing request.

    The request is recorded, and the issuer signs it. Asked again with the same key, the same certificate; with the key of the
    presented certificate, that one. TLS has proven possession of the presented certificate's key. Another key in the place of
    a successor is a fork: it suspends the node. Raises `Invalid` for an unusable request, `Unauthenticated` if the presented
    certificate was revoked meanwhile, `IdentityConflict` for a fork and after it, `TooManyCertificates`, `CertificatePending`;
    for a new request of a node with a TPM, `AttestationRequired` and `AttestationRefused`, which are recorded.
    """
    key_sha256 = key_digest(read_signing_request(csr_pem))
    request: UUID | None = None
    try:
        async with context.database.transaction() as tx:
            await lock_node(tx, node_id)
            standing = await require_standing(tx, node_id, serial)
            link = await read_link(tx, serial)
            pem = link.pem_for(key_sha256)
            if pem is None:
                wanted = RenewalRequest(csr_pem, key_sha256, answer, request_id)
                request = await _request_successor(tx, standing, serial, link, wanted)
            server_time = await read_clock(tx)
            reach(CrashPoint.RENEW_CERTIFICATE_BEFORE_COMMIT)
        reach(CrashPoint.RENEW_CERTIFICATE_AFTER_COMMIT)
    except AttestationProblem as refused:
        await attestation.record_refusal(context.database, refused, request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error
    if pem is None and request is None:
        raise IdentityConflict(CONFLICT)
    if request is not None:
        pem, server_time = await wait_for_certificate(context.database, request, wait_seconds_max)
    assert pem is not None
    return Renewed(node_id, standing.epoch, pem, server_time)


async def _request_successor(
    tx: Transaction, standing: Standing, serial: str, link: Link, wanted: RenewalRequest
) -> UUID | None:
    """The request for the successor, recorded once; None if another key has its place, which suspends the node."""
    recorded = await request_of_link(tx, standing.node_id, standing.epoch, serial)
    if recorded is not None and recorded.key_sha256 == wanted.key_sha256 and link.successor_key_sha256 is None:
        return recorded.id
    # Before the fork: a copied key without the TPM is not the node, and must not suspend it.
    proof = await attestation.require_attestation(
        tx, standing.node_id, wanted.key_sha256, wanted.attestation, enrolling=False
    )
    is_fork = link.successor_key_sha256 is not None or recorded is not None
    if is_fork:
        await _suspend(tx, standing, serial, wanted.request_id)
        return None
    if link.valid >= VALID_PER_NODE_MAX:
        raise TooManyCertificates(
            f"at most {VALID_PER_NODE_MAX} certificates of a node are valid at once; renew when one has ended"
        )
    return await record_request(
        tx, standing.node_id, standing.epoch,
        predecessor=serial, key_sha256=wanted.key_sha256, csr_pem=wanted.csr_pem, evidence=proof,
        request_id=wanted.request_id,
    )  # fmt: skip


async def _suspend(tx: Transaction, standing: Standing, serial: str, request_id: str) -> None:
    name = await suspend_for_identity_conflict(tx, standing.node_id)
    detail = {"epoch": standing.epoch, "serial": serial}
    payload = {"node_id": standing.node_id, "name": name, **detail}
    subject = f"nodes/{standing.node_id}"
    await append_event(tx, Event(EventType.NODE_IDENTITY_CONFLICT, subject, uuid4(), None, payload, None, request_id))
    await _record(tx, standing, "node.refuse_renewal", detail, request_id)


async def _record(tx: Transaction, standing: Standing, action: str, detail: JsonObject, request_id: str) -> None:
    actor = Actor(ActorKind.NODE, str(standing.node_id))
    await audit.record(tx, actor, action, f"nodes/{standing.node_id}", detail, request_id)


async def revoke_node_certificates(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, *, reason: str
) -> Answer:
    """200 with the node, which counts as offline until it is heard of again."""

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        revoked = await node_certificates.revoke_certificates(tx, node_id, reason)
        await nodes.set_node_offline(tx, node_id)
        payload = {"node_id": node_id, "reason": reason, "certificates": revoked}
        await append_event(
            tx,
            Event(
                EventType.NODE_CERTIFICATES_REVOKED,
                subject=f"nodes/{node_id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload=payload,
                operation_key=operation.key,
                request_id=operation.request_id,
            ),
        )
        await audit.record(
            tx, actor, "node.revoke_certificates", f"nodes/{node_id}",
            {"reason": reason, "certificates": revoked}, operation.request_id,
        )  # fmt: skip
        return Done(200, await nodes.node_document(tx, await nodes.read_node(tx, node_id)), node_id)

    return await run_once(context, operation, effect, None)
