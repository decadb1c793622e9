"""Sign recorded requests for certificates of deploy systems: the only commands that use the key of their CA."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import structlog

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.nodes.certificates import NodeAuthority, proven_key
from orchestrator.nodes.deploy_systems import store
from orchestrator.nodes.deploy_systems.store import DeployRequest
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store.attestation import is_proven, note_attested, read_tpm
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.nodes.store.pools import share_policy
from orchestrator.problems import OperationInProgress
from orchestrator.tenants.principals import Actor, ActorKind

BATCH_MAX: Final = 100
RETIRED: Final = "the node is retired"
OTHER_KEY: Final = "the request does not prove the recorded key"
NOT_ATTESTED: Final = "the request does not prove the TPM of the machine"

log = structlog.get_logger("issuer")


async def issue_pending_deploy_systems(database: Database, authority: NodeAuthority) -> int:
    """Decide the oldest pending requests, each in a transaction; return how many were decided here.

    A request whose node is locked for long by another command is left for the next call.
    """
    async with database.reading() as reading:
        pending = await store.find_pending(reading, BATCH_MAX)
    decided = 0
    for request, node_id in pending:
        try:
            decided += await issue_deploy_certificate(database, authority, request, node_id)
        except (TransactionConflict, OperationInProgress):
            log.info("request_left", request=str(request), node=str(node_id))
    return decided


async def issue_deploy_certificate(database: Database, authority: NodeAuthority, request: UUID, node_id: UUID) -> bool:
    """Sign or refuse one request; False if another issuer has decided it, or its permission has ended.

    Raises `TransactionConflict`, `OperationInProgress`.
    """
    async with database.transaction() as tx:
        state = await lock_node(tx, node_id)
        await share_policy(tx, node_id)
        found = await store.read_request(tx, request)
        if found is None:
            return False
        await _decide(tx, authority, state, found)
        reach(CrashPoint.ISSUE_DEPLOY_CERTIFICATE_BEFORE_COMMIT)
    reach(CrashPoint.ISSUE_DEPLOY_CERTIFICATE_AFTER_COMMIT)
    return True


async def _decide(tx: Transaction, authority: NodeAuthority, state: NodeState, found: DeployRequest) -> None:
    key = proven_key(found.csr_pem, found.key_sha256)
    refusal = await _refusal(tx, state, found)
    if key is None or refusal is not None:
        why = refusal or OTHER_KEY
        await store.set_refused(tx, found.id, why)
        await _record(tx, found, "node.refuse_deploy_certificate", {"refusal": why})
        return
    clock, seconds = await read_clock(tx), found.certificate_seconds
    issued = authority.issue_deploy(key, found.node_id, found.deploy_epoch, seconds, at=clock)
    await store.set_issued(tx, found.id, issued)
    if found.evidence is not None:
        await note_attested(tx, found.node_id)
    said = {"serial": issued.serial, "attested": found.evidence is not None}
    await _record(tx, found, "node.issue_deploy_certificate", said)


async def _refusal(tx: Transaction, state: NodeState, found: DeployRequest) -> str | None:
    """Why no certificate is issued. The listener's word is not enough for a TPM: its quote is verified again."""
    if state is NodeState.RETIRED:
        return RETIRED
    tpm = await read_tpm(tx, found.node_id)
    if (found.tpm_required and found.evidence is None) or not is_proven(tpm, found.evidence, found.key_sha256):
        return NOT_ATTESTED
    return None


async def _record(tx: Transaction, found: DeployRequest, action: str, detail: JsonObject) -> None:
    actor = Actor(ActorKind.NODE, str(found.node_id))
    said = {"deploy_epoch": found.deploy_epoch, **detail}
    await audit.record(tx, actor, action, f"nodes/{found.node_id}", said, found.request_id)
