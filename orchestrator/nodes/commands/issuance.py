"""Sign recorded requests for node certificates: the only commands that use the key of the node CA."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import structlog

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.nodes.certificates import NodeAuthority, PublicKey, proven_key
from orchestrator.nodes.store import certificate_requests
from orchestrator.nodes.store.attestation import is_proven, note_attested
from orchestrator.nodes.store.certificate_requests import RequestToSign
from orchestrator.nodes.store.certificates import record_certificate
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.nodes.store.pools import share_policy
from orchestrator.problems import OperationInProgress
from orchestrator.tenants.principals import Actor, ActorKind

BATCH_MAX: Final = 100
NOT_CURRENT: Final = "the node is retired, suspended or enrolled again"
NO_LINK: Final = "the presented certificate is over, revoked or renewed already"
OTHER_KEY: Final = "the request does not prove the recorded key"
NOT_ATTESTED: Final = "the request does not prove the node's TPM"

log = structlog.get_logger("issuer")


async def issue_pending(database: Database, authority: NodeAuthority) -> int:
    """Decide the oldest pending requests, each in a transaction; return how many were decided here.

    A request whose node is locked for long by another command is left for the next call.
    """
    async with database.reading() as reading:
        pending = await certificate_requests.pending_requests(reading, BATCH_MAX)
    decided = 0
    for request, node_id in pending:
        try:
            decided += await issue_certificate(database, authority, request, node_id)
        except (TransactionConflict, OperationInProgress):
            log.info("request_left", request=str(request), node=str(node_id))
    return decided


async def issue_certificate(database: Database, authority: NodeAuthority, request: UUID, node_id: UUID) -> bool:
    """Sign or refuse one request; False if another issuer has decided it. Raises `TransactionConflict`, `OperationInProgress`."""
    async with database.transaction() as tx:
        await lock_node(tx, node_id)
        await share_policy(tx, node_id)
        found = await certificate_requests.read_request_to_sign(tx, request)
        if found is None:
            return False
        key = proven_key(found.csr_pem, found.key_sha256)
        refusal = _refusal(found)
        if key is not None and refusal is None:
            await _sign(tx, authority, found, key)
        else:
            await certificate_requests.set_refused(tx, request, refusal or OTHER_KEY)
            await _record(tx, found, "node.refuse_certificate", {"epoch": found.epoch, "refusal": refusal or OTHER_KEY})
        reach(CrashPoint.ISSUE_CERTIFICATE_BEFORE_COMMIT)
    reach(CrashPoint.ISSUE_CERTIFICATE_AFTER_COMMIT)
    return True


def _refusal(found: RequestToSign) -> str | None:
    if not found.is_current:
        return NOT_CURRENT
    if not found.extends_chain:
        return NO_LINK
    return None if is_proven(found.tpm, found.evidence, found.key_sha256) else NOT_ATTESTED


async def _sign(tx: Transaction, authority: NodeAuthority, found: RequestToSign, key: PublicKey) -> None:
    issued = authority.issue(key, found.node_id, at=await read_clock(tx))
    await record_certificate(tx, found.node_id, found.epoch, issued, predecessor=found.predecessor)
    await certificate_requests.set_issued(tx, found.id, issued.serial)
    attested = {} if found.evidence is None else {"attested": True}
    if attested:
        await note_attested(tx, found.node_id)
    if found.predecessor is None:
        await _record(tx, found, "node.issue_certificate", {"epoch": found.epoch, "serial": issued.serial, **attested})
        return
    detail = {"epoch": found.epoch, "serial": issued.serial, "predecessor": found.predecessor, **attested}
    await _record(tx, found, "node.renew_certificate", detail)


async def _record(tx: Transaction, found: RequestToSign, action: str, detail: JsonObject) -> None:
    actor = Actor(ActorKind.NODE, str(found.node_id))
    await audit.record(tx, actor, action, f"nodes/{found.node_id}", detail, found.request_id)
