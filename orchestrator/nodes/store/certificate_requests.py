"""Requests for node certificates: a listener records what it has authenticated, the issuer decides each one once.

At most one request exists for each link of a chain (constraint `one_request_for_a_link`), so a chain never forks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.attestation.evidence import Evidence
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.nodes.store.attestation import NodeTpm
from orchestrator.nodes.store.holders import Holder

_INSERT = """
insert into certificate_requests (node_id, node_epoch, predecessor, key_sha256, csr_pem, request_id,
                                  attestation_secret, quote, quote_signature)
values (:node_id, :epoch, :predecessor, :key_sha256, :csr_pem, :request_id, :secret, :quote, :signature)
returning id
"""
_OF_LINK = """
select id, key_sha256 from certificate_requests
where node_id = :node_id and node_epoch = :epoch and predecessor is not distinct from cast(:predecessor as text)
"""
_DECISION = """
select c.pem, r.refusal, n.identity_conflict_at is not null as is_conflicted, clock_timestamp() as server_time
from certificate_requests r join nodes n on n.id = r.node_id left join node_certificates c on c.serial = r.serial
where r.id = :id
"""
_PENDING = """
select id, node_id from certificate_requests where serial is null and refusal is null order by id limit :most
"""
# Read under the node's lock. A certificate of a first link needs an epoch without one; any other, a predecessor that is
# valid now and has no successor.
_TO_SIGN = """
select r.id, r.node_id, r.node_epoch, r.predecessor, r.key_sha256, r.csr_pem, r.request_id,
       r.attestation_secret, r.quote, r.quote_signature, t.ek_sha256, t.ak_public,
       case when t.policy <> 'offered' or t.policy_is_set then t.policy else coalesce(a.policy, 'offered') end as policy,
       n.epoch = r.node_epoch and n.state <> 'retired' and n.identity_conflict_at is null as is_current,
       case when r.predecessor is null
            then not exists (select from node_certificates c where c.node_id = r.node_id and c.node_epoch = r.node_epoch)
            else exists (select from node_certificates c where c.serial = r.predecessor and c.node_id = r.node_id
                           and c.node_epoch = r.node_epoch and c.revoked_at is null and c.not_after > clock_timestamp())
             and not exists (select from node_certificates s where s.predecessor = r.predecessor) end as extends_chain
from certificate_requests r join nodes n on n.id = r.node_id left join node_tpms t on t.node_id = r.node_id
     left join pool_attestations a on a.pool_id = n.pool_id
where r.id = :id and r.serial is null and r.refusal is null
"""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The request for a link of a chain, and the SHA-256 of its key."""

    id: UUID
    key_sha256: bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """What the issuer has decided: a certificate, a refusal, or nothing yet; whether the node is suspended for a fork of
    its chain; and the database's time.
    """

    pem: str | None
    refusal: str | None
    is_conflicted: bool
    server_time: datetime


@dataclass(frozen=True, slots=True)
class RequestToSign:
    """A pending request, and whether the node's identity and its chain allow a certificate now."""

    id: UUID
    node_id: UUID
    epoch: int
    predecessor: str | None
    key_sha256: bytes
    csr_pem: str
    request_id: str | None
    is_current: bool
    extends_chain: bool
    tpm: NodeTpm
    evidence: Evidence | None


async def record_request(
    tx: Transaction,
    node_id: UUID,
    epoch: int,
    *,
    predecessor: str | None,
    key_sha256: bytes,
    csr_pem: str,
    evidence: Evidence | None,
    request_id: str,
) -> UUID:
    """The issuer may sign the request from the commit on. The caller has locked and authenticated the node."""
    values = {
        "node_id": node_id, "epoch": epoch, "predecessor": predecessor, "key_sha256": key_sha256, "csr_pem": csr_pem,
        "request_id": request_id, "secret": evidence and evidence.secret, "quote": evidence and evidence.quote,
        "signature": evidence and evidence.signature,
    }  # fmt: skip
    inserted: UUID = (await tx.execute(_INSERT, values)).scalar_one()
    return inserted


async def request_of_link(
    tx: Transaction, node_id: UUID, epoch: int, predecessor: str | None, holder: Holder = Holder.NODE
) -> RecordedRequest | None:
    """The request for the successor of `predecessor`, or for the first certificate of the epoch; None without one."""
    row = (
        await tx.execute(holder.sql(_OF_LINK), {"node_id": node_id, "epoch": epoch, "predecessor": predecessor})
    ).first()
    return None if row is None else RecordedRequest(row.id, row.key_sha256)


async def read_decision(reading: Reading, request: UUID, holder: Holder = Holder.NODE) -> Decision:
    """What the issuer has decided so far about a request that exists."""
    row = (await reading.execute(holder.sql(_DECISION), {"id": request})).one()
    return Decision(row.pem, row.refusal, row.is_conflicted, row.server_time)


async def pending_requests(reading: Reading, most: int, holder: Holder = Holder.NODE) -> list[tuple[UUID, UUID]]:
    """The oldest requests that no issuer has decided: each with its node."""
    return [tuple(row) for row in (await reading.execute(holder.sql(_PENDING), {"most": most})).all()]


async def read_request_to_sign(tx: Transaction, request: UUID) -> RequestToSign | None:
    """The request, read under its node's lock; None if it has been decided meanwhile."""
    row = (await tx.execute(_TO_SIGN, {"id": request})).first()
    if row is None:
        return None
    tpm = NodeTpm(AttestationPolicy(row.policy), row.ek_sha256, row.ak_public)
    evidence = None if row.quote is None else Evidence(row.attestation_secret, row.quote, row.quote_signature)
    return RequestToSign(
        row.id, row.node_id, row.node_epoch, row.predecessor, row.key_sha256, row.csr_pem, row.request_id,
        row.is_current, row.extends_chain, tpm, evidence,
    )  # fmt: skip


async def set_issued(tx: Transaction, request: UUID, serial: str, holder: Holder = Holder.NODE) -> None:
    """The request is answered by this certificate."""
    statement = "update certificate_requests set serial = :serial where id = :id"
    await tx.execute(holder.sql(statement), {"id": request, "serial": serial})


async def set_refused(tx: Transaction, request: UUID, refusal: str, holder: Holder = Holder.NODE) -> None:
    """The request gets no certificate."""
    statement = "update certificate_requests set refusal = :refusal where id = :id"
    await tx.execute(holder.sql(statement), {"id": request, "refusal": refusal})
