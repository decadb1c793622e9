"""Challenge the TPM of a node, and say which TPM a node must have."""

from __future__ import annotations

import hashlib
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.nodes.attestation.evidence import Challenge, new_challenge
from orchestrator.nodes.attestation.structures import read_attestation_key, read_endorsement_key
from orchestrator.nodes.refusals import AttestationProblem
from orchestrator.nodes.states import AttestationPolicy, NodeAttestation
from orchestrator.nodes.store import attestation, nodes
from orchestrator.nodes.store.attestation import record_refusal, set_tpm
from orchestrator.nodes.store.certificates import require_standing
from orchestrator.nodes.store.enrolment import NOT_VALID, lock_node_of_token, token_state
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import OperationInProgress, Unauthenticated
from orchestrator.tenants.principals import Actor


async def challenge_enrolment(
    context: Context, *, token: str, hardware_id: str, ek_public: bytes, ak_public: bytes, request_id: str
) -> Challenge | None:
    """A challenge for the TPM of the node that the token is for; None if its enrolment needs no proof.

    A used token needs none: its enrolment can only be repeated. Raises `Unauthenticated` as enrolment does, and
    `AttestationRefused` for another TPM than the registered one; that is recorded.
    """
    try:
        async with context.database.transaction() as tx:
            token_hash = hashlib.sha256(token.encode()).digest()
            node_id = await lock_node_of_token(tx, token_hash)
            state = None if node_id is None else await token_state(tx, node_id, token_hash, hardware_id)
            if node_id is None or state is None:
                raise Unauthenticated(NOT_VALID)
            if state == "used":
                return None
            return await _challenge(tx, node_id, ek_public, ak_public, enrolling=True)
    except AttestationProblem as refused:
        await record_refusal(context.database, refused, request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error


async def challenge_renewal(
    context: Context, node_id: UUID, serial: str, *, ek_public: bytes, ak_public: bytes, request_id: str
) -> Challenge | None:
    """A challenge for the TPM of the calling node; None if its renewals need no proof.

    Raises `AttestationRefused` for another TPM or another attestation key than at enrolment; that is recorded.
    """
    try:
        async with context.database.transaction() as tx:
            await nodes.lock_node(tx, node_id)
            await require_standing(tx, node_id, serial)
            return await _challenge(tx, node_id, ek_public, ak_public, enrolling=False)
    except AttestationProblem as refused:
        await record_refusal(context.database, refused, request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error


async def _challenge(
    tx: Transaction, node_id: UUID, ek_public: bytes, ak_public: bytes, *, enrolling: bool
) -> Challenge | None:
    tpm = await attestation.read_tpm(tx, node_id)
    if tpm.policy is AttestationPolicy.OFF or (not enrolling and tpm.ak_public is None):
        return None
    with attestation.refusals_of(node_id):
        ek, ak = read_endorsement_key(ek_public), read_attestation_key(ak_public)
        attestation.require_same_tpm(tpm, ek, ak, enrolling=enrolling)
    challenge = new_challenge(ek, ak)
    await attestation.record_challenge(tx, node_id, ek, ak, challenge)
    return challenge


async def set_attestation(
    context: Context,
    operation: Operation,
    actor: Actor,
    node_id: UUID,
    *,
    policy: NodeAttestation,
    ek_sha256: bytes | None,
    forget_tpm: bool,
) -> Answer:
    """200 with the node. Without `ek_sha256` its TPM stays, unless it is to be forgotten. A certificate stays valid.

    Another TPM, or none, needs a new enrolment to be of use; a renewal before it is refused.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        before = await attestation.read_tpm(tx, node_id)
        after = None if forget_tpm else ek_sha256 or before.ek_sha256
        is_other = await set_tpm(tx, node_id, policy.own, after)
        detail = {
            "policy": (await attestation.read_tpm(tx, node_id)).policy.value, "policy_before": before.policy.value,
            "set_for": "pool" if policy.own is None else "node", "tpm_replaced": is_other,
            "ek_sha256": None if after is None else after.hex(),
        }  # fmt: skip
        await audit.record(tx, actor, "node.set_attestation", f"nodes/{node_id}", detail, operation.request_id)
        return Done(200, await nodes.node_document(tx, await nodes.read_node(tx, node_id)), node_id)

    return await run_once(context, operation, effect, None)
