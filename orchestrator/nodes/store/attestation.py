"""TPMs of nodes: which one a node must prove to have, its one unanswered challenge, and the proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Database, Transaction
from orchestrator.nodes.attestation.evidence import Challenge, Evidence, verify_evidence
from orchestrator.nodes.attestation.structures import (
    AttestationKey,
    EndorsementKey,
    read_attestation_key,
    read_endorsement_key,
    read_quote,
)
from orchestrator.nodes.refusals import (
    AttestationProblem,
    AttestationReason,
    AttestationRefused,
    AttestationRequired,
)
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.tenants.principals import Actor, ActorKind

CHALLENGE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class NodeTpm:
    """What a node must prove. `ek_sha256`: the registered or pinned TPM; `ak_public`: the key that has attested."""

    policy: AttestationPolicy
    ek_sha256: bytes | None
    ak_public: bytes | None

    @property
    def must_attest(self) -> bool:
        """Whether the node gets no certificate without a proof: by its policy, or because a TPM is registered or pinned."""
        return self.policy is AttestationPolicy.REQUIRED or (
            self.policy is not AttestationPolicy.OFF and self.ek_sha256 is not None
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent sends for a challenge: TPMS_ATTEST and the signature in DER."""

    quote: bytes
    signature: bytes


_FIND = """
select case when t.policy <> 'offered' or t.policy_is_set then t.policy else coalesce(a.policy, 'offered') end as policy,
       t.ek_sha256, t.ak_public
from nodes n left join node_tpms t on t.node_id = n.id left join pool_attestations a on a.pool_id = n.pool_id
where n.id = :node_id
"""
_SET = """
insert into node_tpms (node_id, policy, policy_is_set, ek_sha256)
values (:node_id, coalesce(:policy, 'offered'), cast(:policy as text) is not null, :ek_sha256)
on conflict (node_id) do update set policy = excluded.policy, policy_is_set = excluded.policy_is_set,
    ek_sha256 = excluded.ek_sha256,
    ek_public = case when :keeps then node_tpms.ek_public end, ak_public = case when :keeps then node_tpms.ak_public end,
    attested_at = case when :keeps then node_tpms.attested_at end
"""
_PIN = """
insert into node_tpms (node_id, ek_sha256, ek_public, ak_public) values (:node_id, :ek_sha256, :ek_public, :ak_public)
on conflict (node_id) do update set ek_sha256 = excluded.ek_sha256, ek_public = excluded.ek_public, ak_public = excluded.ak_public
"""
_CHALLENGE = """
insert into attestation_challenges (node_id, secret, ek_public, ak_public, expires_at)
values (:node_id, :secret, :ek_public, :ak_public, clock_timestamp() + make_interval(secs => cast(:seconds as float8)))
on conflict (node_id) do update set secret = excluded.secret, ek_public = excluded.ek_public,
    ak_public = excluded.ak_public, expires_at = excluded.expires_at
"""
_CONSUME = """
delete from attestation_challenges where node_id = :node_id
returning secret, ek_public, ak_public, expires_at > clock_timestamp() as is_valid
"""


async def read_tpm(tx: Transaction, node_id: UUID) -> NodeTpm:
    """What the node, locked by the caller, must prove."""
    row = (await tx.execute(_FIND, {"node_id": node_id})).first()
    if row is None:
        return NodeTpm(AttestationPolicy.OFFERED, None, None)
    return NodeTpm(AttestationPolicy(row.policy), row.ek_sha256, row.ak_public)


async def set_tpm(tx: Transaction, node_id: UUID, policy: AttestationPolicy | None, ek_sha256: bytes | None) -> bool:
    """The policy (None: its pool's) and the TPM of a node that the caller has locked; return whether the TPM is another one.

    The keys of another TPM are forgotten with it, and so is a challenge in progress.
    """
    before = await read_tpm(tx, node_id)
    keeps = before.ek_sha256 == ek_sha256
    values = {"node_id": node_id, "policy": policy and policy.value, "ek_sha256": ek_sha256, "keeps": keeps}
    await tx.execute(_SET, values)
    await discard_challenge(tx, node_id)
    return not keeps


async def record_challenge(
    tx: Transaction, node_id: UUID, ek: EndorsementKey, ak: AttestationKey, challenge: Challenge
) -> None:
    """The node's only valid challenge from the commit on; one that was not answered ends."""
    keys = {"ek_public": ek.public, "ak_public": ak.public}
    values = {"node_id": node_id, "secret": challenge.secret, **keys, "seconds": CHALLENGE_SECONDS}
    await tx.execute(_CHALLENGE, values)


async def discard_challenge(tx: Transaction, node_id: UUID) -> None:
    """No answer to the node's challenge counts any more."""
    await tx.execute("delete from attestation_challenges where node_id = :node_id", {"node_id": node_id})


async def describe_proof(tx: Transaction, node_id: UUID, proof: Evidence | None) -> dict[str, str]:
    """What the audit keeps of an enrolment's proof."""
    tpm = await read_tpm(tx, node_id)
    if proof is None or tpm.ek_sha256 is None:
        return {}
    return {"ek_sha256": tpm.ek_sha256.hex(), "pcr_digest": read_quote(proof.quote).pcr_digest.hex()}


async def note_attested(tx: Transaction, node_id: UUID) -> None:
    """A certificate was issued to the node with a proof of its TPM."""
    await tx.execute("update node_tpms set attested_at = clock_timestamp() where node_id = :id", {"id": node_id})


def require_same_tpm(tpm: NodeTpm, ek: EndorsementKey, ak: AttestationKey, *, enrolling: bool) -> None:
    """Raise `AttestationRefused` for another TPM than the node's, or outside enrolment for another attestation key."""
    if tpm.ek_sha256 is not None and ek.sha256 != tpm.ek_sha256:
        raise AttestationRefused(AttestationReason.OTHER_TPM, "this is not the TPM that is registered for the node")
    if not enrolling and ak.public != tpm.ak_public:
        raise AttestationRefused(
            AttestationReason.OTHER_KEY, "this is not the attestation key with which the node enrolled"
        )


def is_proven(tpm: NodeTpm, evidence: Evidence | None, key_sha256: bytes) -> bool:
    """Whether the evidence proves the node's TPM for this key, or need not.

    For the issuer, for which a listener's word is not enough. Whether the challenge was fresh only the listener knows; a quote
    names the one key of its request.
    """
    if evidence is None or tpm.policy is AttestationPolicy.OFF:
        return not tpm.must_attest
    if tpm.ak_public is None:
        return False
    try:
        verify_evidence(read_attestation_key(tpm.ak_public), evidence, key_sha256)
    except AttestationRefused:
        return False
    return True


@contextmanager
def refusals_of(node_id: UUID) -> Iterator[None]:
    """Refusals in the block name this node."""
    try:
        yield
    except AttestationProblem as refused:
        refused.node_id = node_id
        raise


async def record_refusal(database: Database, refused: AttestationProblem, request_id: str) -> None:
    """Audit the refusal, whose transaction was rolled back, and let no answer to its challenge count any more."""
    if refused.node_id is None:
        return
    async with database.transaction() as tx:
        await lock_node(tx, refused.node_id)
        await discard_challenge(tx, refused.node_id)
        actor, subject = Actor(ActorKind.NODE, str(refused.node_id)), f"nodes/{refused.node_id}"
        detail = {"code": refused.code, **refused.extra}
        await audit.record(tx, actor, "node.refuse_attestation", subject, detail, request_id)


async def require_attestation(
    tx: Transaction, node_id: UUID, key_sha256: bytes, answer: Answer | None, *, enrolling: bool
) -> Evidence | None:
    """The proof that the key to certify is used on the machine with the node's TPM; None if the node need not prove it.

    The caller has locked the node. The first proof at an enrolment pins the TPM; a proof uses up the challenge. Raises
    `AttestationRequired`, `AttestationRefused`; the caller then rolls back and discards the challenge.
    """
    with refusals_of(node_id):
        return await _proven(tx, node_id, key_sha256, answer, enrolling=enrolling)


async def _proven(
    tx: Transaction, node_id: UUID, key_sha256: bytes, answer: Answer | None, *, enrolling: bool
) -> Evidence | None:
    tpm = await read_tpm(tx, node_id)
    if tpm.policy is AttestationPolicy.OFF or (answer is None and not tpm.must_attest):
        return None
    if answer is None:
        raise AttestationRequired("this node must prove its TPM; start its agent with BERTH_TPM_TCTI")
    if not enrolling and tpm.ak_public is None:
        if tpm.must_attest:
            raise AttestationRequired("this node enrolled without its TPM; enrol it again")
        return None
    challenge = (await tx.execute(_CONSUME, {"node_id": node_id})).first()
    if challenge is None or not challenge.is_valid:
        raise AttestationRefused(AttestationReason.NO_CHALLENGE, "its challenge is over or used; ask for another")
    ek, ak = read_endorsement_key(challenge.ek_public), read_attestation_key(challenge.ak_public)
    require_same_tpm(tpm, ek, ak, enrolling=enrolling)
    evidence = Evidence(challenge.secret, answer.quote, answer.signature)
    verify_evidence(ak, evidence, key_sha256)
    if enrolling:
        pin = {"ek_sha256": ek.sha256, "ek_public": ek.public, "ak_public": ak.public}
        await tx.execute(_PIN, {"node_id": node_id, **pin})
    return evidence
