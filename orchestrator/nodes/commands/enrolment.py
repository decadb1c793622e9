"""Give out a one-time token with which a node's agent enrols."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.certificates import NodeAuthority, PublicKey, key_digest, read_signing_request
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import enrolment, nodes
from orchestrator.nodes.store.certificates import record_certificate, revoke_certificates
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
) -> Answer:
    """201 with the token, sealed for the caller. Naming the hardware lets another machine take the node's place."""
    token = f"enrol_{secrets.token_urlsafe(TOKEN_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        state = await nodes.lock_node(tx, node_id)
        if state is NodeState.RETIRED:
            raise InvalidState("a retired node does not enrol", state=state.value)
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


async def enrol_node(
    context: Context, authority: NodeAuthority, *, token: str, hardware_id: str, csr_pem: str, request_id: str
) -> Enrolled:
    """The node in its next epoch, with one live certificate. Raises `Invalid` for an unusable request, and one and the
    same `Unauthenticated` for a token that is unknown, used, over, or another machine's.
    """
    key = read_signing_request(csr_pem)
    token_hash = hashlib.sha256(token.encode()).digest()
    try:
        async with context.database.transaction() as tx:
            enrolled = await _enrol(tx, authority, key, token_hash, hardware_id, request_id)
            reach(CrashPoint.ENROL_NODE_BEFORE_COMMIT)
        reach(CrashPoint.ENROL_NODE_AFTER_COMMIT)
        return enrolled
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error


async def _enrol(
    tx: Transaction, authority: NodeAuthority, key: PublicKey, token_hash: bytes, hardware_id: str, request_id: str
) -> Enrolled:
    node_id = await enrolment.lock_node_of_token(tx, token_hash)
    if node_id is None:
        raise _not_valid()
    if not await enrolment.consume_token(tx, node_id, token_hash, hardware_id):
        answered = await enrolment.answered_before(tx, node_id, token_hash, hardware_id, key_digest(key))
        if answered is None:
            raise _not_valid()
        return Enrolled(node_id, answered.epoch, answered.certificate_pem, await read_clock(tx))
    name, epoch, state = await enrolment.enrol_node(tx, node_id, hardware_id)
    await revoke_certificates(tx, node_id, "the node enrolled again")
    issued = authority.issue(key, node_id)
    await record_certificate(tx, node_id, epoch, issued, predecessor=None)
    payload = {"node_id": node_id, "name": name, "epoch": epoch, "hardware_id": hardware_id, "state": state}
    await append_event(tx, Event(EventType.NODE_ENROLLED, f"nodes/{node_id}", uuid4(), None, payload, None, request_id))
    detail = {"epoch": epoch, "hardware_id": hardware_id, "serial": issued.serial}
    await audit.record(tx, Actor(ActorKind.NODE, str(node_id)), "node.enrol", f"nodes/{node_id}", detail, request_id)
    return Enrolled(node_id, epoch, issued.pem, await read_clock(tx))


def _not_valid() -> Unauthenticated:
    return Unauthenticated("this enrolment token is not valid here; ask an operator for a new one")
