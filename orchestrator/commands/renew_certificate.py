"""Renew a node's certificate, on the strength of the one it still has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.domain.errors import OperationInProgress
from orchestrator.execution import Context
from orchestrator.store.clock import read_clock
from orchestrator.store.database import TransactionConflict
from orchestrator.store.node_certificates import record_certificate, require_standing, revoke_surplus
from orchestrator.store.nodes import lock_node
from orchestrator.trust.certificates import NodeAuthority, read_signing_request


@dataclass(frozen=True, slots=True)
class Renewed:
    """The new certificate; the one it was asked with stays good until its own end, so a lost answer loses nothing."""

    node_id: UUID
    epoch: int
    certificate_pem: str
    server_time: datetime


async def renew_certificate(
    context: Context, authority: NodeAuthority, node_id: UUID, serial: str, *, csr_pem: str
) -> Renewed:
    """A certificate of the same epoch.

    Raises `Invalid` for an unusable request, `Unauthenticated` if the presented certificate was revoked meanwhile.
    """
    key = read_signing_request(csr_pem)
    try:
        async with context.database.transaction() as tx:
            await lock_node(tx, node_id)
            standing = await require_standing(tx, node_id, serial)
            issued = authority.issue(key, node_id)
            await record_certificate(
                tx,
                node_id=node_id,
                epoch=standing.epoch,
                serial=issued.serial,
                key_sha256=issued.key_sha256,
                not_before=issued.not_before,
                not_after=issued.not_after,
            )
            await revoke_surplus(tx, node_id, serial)
            renewed = Renewed(node_id, standing.epoch, issued.pem, await read_clock(tx))
            reach(CrashPoint.RENEW_CERTIFICATE_BEFORE_COMMIT)
        reach(CrashPoint.RENEW_CERTIFICATE_AFTER_COMMIT)
        return renewed
    except TransactionConflict as error:
        raise OperationInProgress("the node is being changed by another request; try again") from error
