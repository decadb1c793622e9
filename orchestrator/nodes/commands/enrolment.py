"""Give out a one-time token with which a node's agent enrols."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.certificate_waits import wait_for_certificate
from orchestrator.nodes.certificates import key_digest, read_signing_request
from orchestrator.nodes.deploy_systems.agentless_store import give_up_agentless
from orchestrator.nodes.deploy_systems.uses import require_enrollable
from orchestrator.nodes.refusals import AttestationProblem
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import attestation, enrolment, nodes
from orchestrator.nodes.store.certificate_requests import record_request
from orchestrator.nodes.store.certificates import revoke_certificates
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, OperationInProgress, Unauthenticated
from orchestrator.tenants.principals import Actor, ActorKind, Principal
from orchestrator.times import rfc3339

TOKEN_BYTES = 32


async def create_enrolment_token(
    context: Context,
    operation: Operation,
    principal: Principal,
    sealer: Sealer,
    node_id: UUID,
    *,
    hardware_id: str | None,
    valid_seconds: float,
    pin: str | None,
) -> Answer:
    """201 with the token, sealed for the caller. Naming the hardware lets another machine take the node's place.

    The token carries the pin of the CA that the agent requires of the public listener, `-` without one (node_agent/pinning.py).
    """
    token = f"enrol2.{pin or '-'}.{secrets.token_urlsafe(TOKEN_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        state = await nodes.lock_node(tx, node_id)
        if state is NodeState.RETIRED:
            raise InvalidState("a retired node does not enrol", state=state.value)
        await require_enrollable(tx, node_id)
        expires_at = await enrolment.insert_token(
            tx,
            node_id=node_id,
            token_hash=hashlib.sha256(token.encode()).digest(),
            hardware_id=hardware_id,
            created_by=principal.id,
            valid_seconds=valid_seconds,
        )
        detail = {"hardware_id": hardware_id, "expires_at": rfc3339(expires_at)}
        await audit.record(
            tx, principal.actor, "node.create_enrolment_token", f"nodes/{node_id}", detail, operation.request_id
        )
        return Done(201, {"token": sealer.seal(token), "expires_at": expires_at}, node_id)

    return await run_once(context, operation, effect, None)


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What enrolment returns to the node besides the control plane's own facts."""

    node_id: UUID
    epoch: int
    certificate_pem: str
    server_time: datetime


@dataclass(frozen=True, slots=True)
class EnrolmentRequest:
    """A signing request with the token that authenticates it, and the proof of the node's TPM if there is one."""

    token: str
    hardware_id: str
    csr_pem: str
    attestation: attestation.Answer | None
    request_id: str

    @property
    def token_hash(self) -> bytes:
        """SHA-256 of the token, by which it is stored."""
        return hashlib.sha256(self.token.encode()).digest()


async def enrol_node(context: Context, wanted: EnrolmentRequest, *, wait_seconds_max: float) -> Enrolled:
    """The node in its next epoch, with one live certificate, which the issuer signs after the commit.

    The transaction that uses the token up records the request. Raises one and the same `Unauthenticated` for a token that is
    unknown, used, over, or another machine's; `Invalid` for an unusable request; what `require_enrollable` raises;
    `AttestationRequired` and `AttestationRefused`, which are recorded; and `CertificatePending`: then the same token with the
    same key returns the certificate later. Nothing but the token is evaluated before it is known.
    """
    try:
        async with context.database.transaction() as tx:
            node_id, epoch, request = await _enrol(tx, wanted)
            reach(CrashPoint.ENROL_NODE_BEFORE_COMMIT)
        reach(CrashPoint.ENROL_NODE_AFTER_COMMIT)
    except AttestationProblem as refused:
        await attestation.record_refusal(context.database, refused, wanted.request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error
    pem, server_time = await wait_for_certificate(context.database, request, wait_seconds_max)
    return Enrolled(node_id, epoch, pem, server_time)


async def _enrol(tx: Transaction, wanted: EnrolmentRequest) -> tuple[UUID, int, UUID]:
    """The node, its epoch and the recorded request."""
    token_hash, hardware_id, request_id = wanted.token_hash, wanted.hardware_id, wanted.request_id
    node_id = await enrolment.lock_node_of_token(tx, token_hash)
    if node_id is None:
        raise _not_valid()
    key_sha256 = key_digest(read_signing_request(wanted.csr_pem))
    if not await enrolment.consume_token(tx, node_id, token_hash, hardware_id):
        before = await enrolment.recorded_before(tx, node_id, token_hash, hardware_id, key_sha256)
        if before is None:
            raise _not_valid()
        return node_id, before.epoch, before.request
    await require_enrollable(tx, node_id)
    proof = await attestation.require_attestation(tx, node_id, key_sha256, wanted.attestation, enrolling=True)
    await give_up_agentless(tx, node_id)
    name, epoch, state = await enrolment.enrol_node(tx, node_id, hardware_id)
    await revoke_certificates(tx, node_id, "the node enrolled again")
    request = await record_request(
        tx, node_id, epoch,
        predecessor=None, key_sha256=key_sha256, csr_pem=wanted.csr_pem, evidence=proof, request_id=request_id,
    )  # fmt: skip
    payload = {"node_id": node_id, "name": name, "epoch": epoch, "hardware_id": hardware_id, "state": state}
    await append_event(tx, Event(EventType.NODE_ENROLLED, f"nodes/{node_id}", uuid4(), None, payload, None, request_id))
    detail = {"epoch": epoch, "hardware_id": hardware_id, **await attestation.describe_proof(tx, node_id, proof)}
    await audit.record(tx, Actor(ActorKind.NODE, str(node_id)), "node.enrol", f"nodes/{node_id}", detail, request_id)
    return node_id, epoch, request


def _not_valid() -> Unauthenticated:
    return Unauthenticated(enrolment.NOT_VALID)
