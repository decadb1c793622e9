"""Renew a node's certificate, on the strength of the one it still has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.certificates import NodeAuthority, read_signing_request
from orchestrator.nodes.store import certificates as node_certificates
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.certificates import record_certificate, require_standing, revoke_surplus
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import OperationInProgress
from orchestrator.tenants.principals import Actor


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
