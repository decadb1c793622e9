"""Enrol a deploy system by its one-time token, and record its hello."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_enrolment import DeployHello
from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.nodes.attestation.evidence import Challenge, Evidence, new_challenge
from orchestrator.nodes.attestation.structures import read_attestation_key, read_endorsement_key
from orchestrator.nodes.certificates import key_digest, read_signing_request
from orchestrator.nodes.deploy_systems import store
from orchestrator.nodes.deploy_systems.queries import NOT_KNOWN
from orchestrator.nodes.deploy_systems.refusals import DeployReason, DeployRefused
from orchestrator.nodes.deploy_systems.rules import AUDITED_REFUSALS_MAX, Permission, Presented, refusal_of
from orchestrator.nodes.deploy_systems.store import DeployStanding
from orchestrator.nodes.refusals import AttestationProblem, AttestationRequired
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.nodes.store import attestation, nodes
from orchestrator.operations.execution import Context, transact
from orchestrator.problems import CertificatePending, OperationInProgress, Unauthenticated
from orchestrator.tenants.principals import Actor, ActorKind

_PAUSE_SECONDS_LEAST: Final = 0.05
_PAUSE_SECONDS_MOST: Final = 0.5


@dataclass(frozen=True, slots=True)
class DeployEnrolment:
    """A token with the machine that presents it, and its signing request."""

    token: str
    presented: Presented
    csr_pem: str
    attestation: attestation.Answer | None
    request_id: str

    @property
    def token_hash(self) -> bytes:
        """SHA-256 of the token, by which it is stored."""
        return hashlib.sha256(self.token.encode()).digest()


@dataclass(frozen=True, slots=True)
class EnrolledDeploySystem:
    """The certificate and its end."""

    node_id: UUID
    deploy_epoch: int
    certificate_pem: str
    ends_at: datetime
    server_time: datetime


async def challenge_deploy_system(
    context: Context, token: str, presented: Presented, *, ek_public: bytes, ak_public: bytes, request_id: str
) -> Challenge | None:
    """A challenge for the TPM of the machine that the token is for; None if its enrolment needs no proof.

    Raises as `enrol_deploy_system`.
    """
    token_hash = hashlib.sha256(token.encode()).digest()
    try:
        await _refuse_early(context.database, token_hash, presented)
        async with context.database.transaction() as tx:
            permission = await _lock_permission(tx, token_hash, presented)
            tpm = await attestation.read_tpm(tx, permission.node_id)
            if permission.used_at is not None or tpm.policy is AttestationPolicy.OFF:
                return None
            with attestation.refusals_of(permission.node_id):
                ek, ak = read_endorsement_key(ek_public), read_attestation_key(ak_public)
                attestation.require_same_tpm(tpm, ek, ak, enrolling=True)
            challenge = new_challenge(ek, ak)
            await attestation.record_challenge(tx, permission.node_id, ek, ak, challenge)
            return challenge
    except (AttestationProblem, DeployRefused) as refused:
        await _record_refusal(context.database, refused, token_hash, request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error


async def enrol_deploy_system(
    context: Context, wanted: DeployEnrolment, *, wait_seconds_max: float
) -> EnrolledDeploySystem:
    """A certificate for the machine that the token is for; the issuer signs it after the commit.

    The token is used up once, whatever races for it; the same key gets the same certificate again. Raises `Unauthenticated` for
    an unknown token, `DeployRefused` with its reason, `Invalid` for an unusable request, `AttestationRequired` and
    `AttestationRefused`; none of them changes the permission, and the first of each token are audited. Raises
    `CertificatePending` if the issuer has not signed in time.
    """
    presented = wanted.presented
    try:
        await _refuse_early(context.database, wanted.token_hash, presented)
        async with context.database.transaction() as tx:
            permission = await _enrol(tx, wanted)
            reach(CrashPoint.ENROL_DEPLOY_SYSTEM_BEFORE_COMMIT)
        reach(CrashPoint.ENROL_DEPLOY_SYSTEM_AFTER_COMMIT)
    except (AttestationProblem, DeployRefused) as refused:
        await _record_refusal(context.database, refused, wanted.token_hash, wanted.request_id)
        raise
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error
    decision = await _decision(context.database, permission.id, wait_seconds_max)
    assert decision.pem is not None, "it was issued"
    assert decision.not_after is not None, "a certificate has an end"
    return EnrolledDeploySystem(
        permission.node_id, permission.deploy_epoch, decision.pem, decision.not_after, decision.server_time
    )


def presented_key(csr_pem: str) -> bytes:
    """SHA-256 of the key that a signing request proves. Raises `Invalid`."""
    return key_digest(read_signing_request(csr_pem))


async def _refuse_early(database: Database, token_hash: bytes, presented: Presented) -> None:
    """Refuse what will be refused under the lock too: a worthless token costs one read, and no lock of its node."""
    async with database.read_one() as reading:
        _require_accepted(await store.read_by_token(reading, token_hash), presented)


def _require_accepted(permission: Permission | None, presented: Presented) -> Permission:
    if permission is None:
        raise Unauthenticated(NOT_KNOWN)
    reason = refusal_of(permission, presented)
    if reason is not None:
        raise _refused(reason, permission)
    return permission


def _refused(reason: DeployReason, permission: Permission) -> DeployRefused:
    refused = DeployRefused.because(reason)
    refused.node_id, refused.deploy_epoch = permission.node_id, permission.deploy_epoch
    return refused


async def _lock_permission(tx: Transaction, token_hash: bytes, presented: Presented) -> Permission:
    """The permission, evaluated under the lock of its node, which no other claim uses."""
    known = await store.read_by_token(tx, token_hash)
    if known is None:
        raise Unauthenticated(NOT_KNOWN)
    await nodes.lock_node(tx, known.node_id)
    permission = _require_accepted(await store.read_by_token(tx, token_hash), presented)
    use = await store.read_use(tx, permission.node_id, permission.claim_id)
    obstacle = use.obstacle(writing=False)
    if obstacle is not None:
        raise _refused(obstacle, permission)
    return permission


async def _enrol(tx: Transaction, wanted: DeployEnrolment) -> Permission:
    permission = await _lock_permission(tx, wanted.token_hash, wanted.presented)
    if permission.used_at is not None:
        return permission
    key_sha256 = wanted.presented.key_sha256
    assert key_sha256 is not None, "an enrolment presents a key"
    proof = await _require_proof(tx, permission, key_sha256, wanted.attestation)
    used = await store.use_up(
        tx, permission.id,
        key_sha256=key_sha256, csr_pem=wanted.csr_pem, request_id=wanted.request_id, evidence=proof,
    )  # fmt: skip
    if not used:  # its time ended between the two reads of the clock
        raise _refused(DeployReason.EXPIRED, permission)
    said = {
        "deploy_epoch": permission.deploy_epoch, "smbios_uuid": str(permission.smbios_uuid),
        **await attestation.describe_proof(tx, permission.node_id, proof),
    }  # fmt: skip
    await _record(tx, permission.node_id, "node.enrol_deploy_system", said, wanted.request_id)
    return permission


async def _require_proof(
    tx: Transaction, permission: Permission, key_sha256: bytes, answer: attestation.Answer | None
) -> Evidence | None:
    if answer is None and permission.tpm_required:
        with attestation.refusals_of(permission.node_id):
            raise AttestationRequired("this deploy system must prove the TPM of its machine, and the request does not")
    return await attestation.require_attestation(tx, permission.node_id, key_sha256, answer, enrolling=True)


async def _decision(database: Database, permission: UUID, seconds_max: float) -> store.Decision:
    """What the issuer decided. Raises `CertificatePending`, `DeployRefused`."""
    deadline = time.monotonic() + seconds_max
    pause = _PAUSE_SECONDS_LEAST
    while True:
        async with database.read_one() as reading:
            decision = await store.read_decision(reading, permission)
        if decision.ended_by is not None:
            raise DeployRefused.because(DeployReason(decision.ended_by))
        if decision.refusal is not None:
            raise DeployRefused.because(DeployReason.CERTIFICATE_REFUSED)
        if decision.pem is not None:
            return decision
        if time.monotonic() + pause > deadline:
            raise CertificatePending("the issuer has not signed the request yet; send the same request again")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MOST)


async def _record_refusal(
    database: Database, refused: AttestationProblem | DeployRefused, token_hash: bytes, request_id: str
) -> None:
    """Audit the refusal, whose transaction was rolled back; of each token only the first ones."""
    if refused.node_id is None:
        return
    async with database.transaction() as tx:
        if not await store.count_refusal(tx, token_hash, AUDITED_REFUSALS_MAX):
            return
        if isinstance(refused, AttestationProblem):
            await attestation.discard_challenge(tx, refused.node_id)
        said = {"code": refused.code, **refused.extra}
        await _record(tx, refused.node_id, "node.refuse_deploy_system", said, request_id)


async def _record(tx: Transaction, node_id: UUID, action: str, detail: JsonObject, request_id: str) -> None:
    await audit.record(tx, Actor(ActorKind.NODE, str(node_id)), action, f"nodes/{node_id}", detail, request_id)


async def record_deploy_hello(context: Context, standing: DeployStanding, hello: DeployHello, request_id: str) -> None:
    """Record that the deploy system has started; the same hello again changes nothing."""

    async def work(tx: Transaction) -> None:
        if await store.record_hello(tx, standing.id, hello) is not None:
            said = {"deploy_epoch": standing.deploy_epoch, "boot_id": str(hello.boot_id)}
            await _record(tx, standing.node_id, "node.deploy_hello", said, request_id)

    await transact(context, work)
