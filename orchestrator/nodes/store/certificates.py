"""Which certificates of nodes count. A node has the ones of its current epoch that are neither revoked nor over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import Unauthenticated

LIVE_PER_NODE_MAX = 4
KEPT_AFTER_EXPIRY = "30 days"


@dataclass(frozen=True, slots=True)
class Standing:
    """A node whose certificate counts now."""

    node_id: UUID
    state: str
    epoch: int


_FIND = """
select n.id, n.state, n.epoch from node_certificates c join nodes n on n.id = c.node_id
where c.serial = :serial and c.node_id = :node_id and c.revoked_at is null and c.node_epoch = n.epoch
  and c.not_after > clock_timestamp() and n.state <> 'retired'
"""
_INSERT = """
insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)
values (:serial, :node_id, :epoch, :key_sha256, :not_before, :not_after)
"""
_REVOKE = """
update node_certificates set revoked_at = clock_timestamp(), revoked_reason = :reason
where node_id = :node_id and revoked_at is null
"""
# Bounded: a node that renews without end keeps the certificate it renews with and the newest few.
_REVOKE_SURPLUS = """
update node_certificates set revoked_at = clock_timestamp(), revoked_reason = 'surplus'
where serial in (
    select serial from node_certificates
    where node_id = :node_id and revoked_at is null and not_after > clock_timestamp() and serial <> :presented
    order by issued_at desc, serial offset :kept
)
"""
_FORGET = """
delete from node_certificates
where node_id = :node_id and not_after < clock_timestamp() - cast(:kept as interval)
"""


async def require_standing(reading: Reading, node_id: UUID, serial: str) -> Standing:
    """The node behind a verified certificate, looked at now. Raises `Unauthenticated` if either no longer counts."""
    row = (await reading.execute(_FIND, {"node_id": node_id, "serial": serial})).first()
    if row is None:
        raise Unauthenticated("this certificate is revoked, superseded or not ours; enrol again")
    return Standing(row.id, row.state, row.epoch)


async def record_certificate(
    tx: Transaction,
    *,
    node_id: UUID,
    epoch: int,
    serial: str,
    key_sha256: bytes,
    not_before: datetime,
    not_after: datetime,
) -> None:
    """The certificate counts from the commit on; those that ended long ago are forgotten."""
    await tx.execute(_FORGET, {"node_id": node_id, "kept": KEPT_AFTER_EXPIRY})
    await tx.execute(
        _INSERT,
        {
            "serial": serial, "node_id": node_id, "epoch": epoch, "key_sha256": key_sha256,
            "not_before": not_before, "not_after": not_after,
        },
    )  # fmt: skip


async def revoke_certificates(tx: Transaction, node_id: UUID, reason: str) -> int:
    """Every certificate of the node is refused from the commit on. Answers how many were live."""
    return (await tx.execute(_REVOKE, {"node_id": node_id, "reason": reason})).rowcount


async def revoke_surplus(tx: Transaction, node_id: UUID, presented_serial: str) -> None:
    """At most `LIVE_PER_NODE_MAX` certificates stay: the one presented and the newest."""
    await tx.execute(
        _REVOKE_SURPLUS, {"node_id": node_id, "presented": presented_serial, "kept": LIVE_PER_NODE_MAX - 1}
    )
