"""Which certificates of nodes count, and their chains.

A node has the certificates of its current epoch that are neither revoked nor over. Each but the first was renewed with its
predecessor, and each has at most one successor (index `one_successor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.certificates import IssuedCertificate
from orchestrator.nodes.store.holders import Holder
from orchestrator.problems import IdentityConflict, Unauthenticated

VALID_PER_NODE_MAX = 8
CONFLICT = "two keys were used as this node's identity; revoke its certificates and enrol it again"
NOT_COUNTED = "this certificate is revoked, superseded or not ours; enrol again"
KEPT_AFTER_EXPIRY = "30 days"


@dataclass(frozen=True, slots=True)
class Standing:
    """A node whose certificate counts now."""

    node_id: UUID
    state: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Link:
    """A certificate's place in its chain: its key and its successor's (SHA-256) and text, and how many of the node are valid."""

    key_sha256: bytes
    pem: str | None
    successor_key_sha256: bytes | None
    successor_pem: str | None
    valid: int

    def pem_for(self, key_sha256: bytes) -> str | None:
        """The certificate, or its successor, that was issued for this key; None if neither was."""
        if key_sha256 == self.successor_key_sha256:
            return self.successor_pem
        return self.pem if key_sha256 == self.key_sha256 else None


_FIND = """
select n.id, n.state, n.epoch, n.identity_conflict_at from node_certificates c join nodes n on n.id = c.node_id
where c.serial = :serial and c.node_id = :node_id and c.revoked_at is null and c.node_epoch = n.epoch
  and c.not_after > clock_timestamp() and n.state <> 'retired'
"""
_INSERT = """
insert into node_certificates
    (serial, node_id, node_epoch, key_sha256, not_before, not_after, predecessor, pem, authority_key_sha256)
values (:serial, :node_id, :epoch, :key_sha256, :not_before, :not_after, :predecessor, :pem, :authority_key_sha256)
"""
_LINK = """
select c.key_sha256, c.pem, s.key_sha256 as successor_key_sha256, s.pem as successor_pem,
       (select count(*) from node_certificates o
        where o.node_id = c.node_id and o.revoked_at is null and o.not_after > clock_timestamp()) as valid
from node_certificates c left join node_certificates s on s.predecessor = c.serial
where c.serial = :serial
"""
_REVOKE = """
update node_certificates set revoked_at = clock_timestamp(), revoked_reason = :reason
where node_id = :node_id and revoked_at is null
"""
_WITHDRAW = """
update certificate_requests set refusal = :reason where node_id = :node_id and serial is null and refusal is null
"""
_SUSPEND = """
update nodes set identity_conflict_at = clock_timestamp(), online = false, row_version = row_version + 1
where id = :node_id returning name
"""
_FORGET = """
delete from node_certificates
where node_id = :node_id and not_after < clock_timestamp() - cast(:kept as interval)
"""
_FORGET_REQUESTS = """
delete from certificate_requests
where node_id = :node_id and requested_at < clock_timestamp() - cast(:kept as interval)
  and (refusal is not null or not exists (select from node_certificates c where c.serial = certificate_requests.serial))
  and not (serial is null and refusal is null)
"""


async def require_standing(reading: Reading, node_id: UUID, serial: str, holder: Holder = Holder.NODE) -> Standing:
    """The node, or other holder, behind a verified certificate, looked at now.

    Raises `Unauthenticated` if either no longer counts, `IdentityConflict` while the node is suspended for one.
    """
    row = (await reading.execute(holder.sql(_FIND), {"node_id": node_id, "serial": serial})).first()
    if row is None:
        raise Unauthenticated(NOT_COUNTED)
    if row.identity_conflict_at is not None:
        raise IdentityConflict(CONFLICT)
    return Standing(row.id, row.state, row.epoch)


async def read_link(tx: Transaction, serial: str, holder: Holder = Holder.NODE) -> Link:
    """The place of a certificate that exists, under its node's lock."""
    row = (await tx.execute(holder.sql(_LINK), {"serial": serial})).one()
    return Link(row.key_sha256, row.pem, row.successor_key_sha256, row.successor_pem, row.valid)


async def record_certificate(
    tx: Transaction, node_id: UUID, epoch: int, issued: IssuedCertificate, *, predecessor: str | None,
    holder: Holder = Holder.NODE,
) -> None:  # fmt: skip
    """The certificate counts from the commit on; those that ended long ago are forgotten."""
    await tx.execute(holder.sql(_FORGET), {"node_id": node_id, "kept": KEPT_AFTER_EXPIRY})
    await tx.execute(holder.sql(_FORGET_REQUESTS), {"node_id": node_id, "kept": KEPT_AFTER_EXPIRY})
    await tx.execute(
        holder.sql(_INSERT),
        {
            "serial": issued.serial, "node_id": node_id, "epoch": epoch, "key_sha256": issued.key_sha256,
            "not_before": issued.not_before, "not_after": issued.not_after, "predecessor": predecessor, "pem": issued.pem,
            "authority_key_sha256": issued.authority_key_sha256,
        },
    )  # fmt: skip


async def suspend_for_identity_conflict(tx: Transaction, node_id: UUID) -> str:
    """Every call of the node, locked by the caller, is refused until it enrols again. Return its name."""
    name: str = (await tx.execute(_SUSPEND, {"node_id": node_id})).scalar_one()
    return name


async def revoke_certificates(tx: Transaction, node_id: UUID, reason: str, holder: Holder = Holder.NODE) -> int:
    """Every certificate of the node is refused from the commit on, and so is each request that the issuer has not signed.

    Answers how many certificates were live.
    """
    await tx.execute(holder.sql(_WITHDRAW), {"node_id": node_id, "reason": reason})
    return (await tx.execute(holder.sql(_REVOKE), {"node_id": node_id, "reason": reason})).rowcount
