"""Sign recorded requests for certificates of agents of sites: with the key of the node CA, as those of nodes."""

from __future__ import annotations

from uuid import UUID

import structlog

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.nodes.certificates import NodeAuthority, PublicKey, proven_key
from orchestrator.nodes.store import certificate_requests
from orchestrator.nodes.store.certificates import record_certificate
from orchestrator.nodes.store.holders import Holder
from orchestrator.problems import OperationInProgress
from orchestrator.sites.rules import actor_of
from orchestrator.sites.store import agents
from orchestrator.sites.store.agents import AgentRequest

BATCH_MAX = 100
NOT_CURRENT = "the agent is revoked, suspended or enrolled again"
NO_LINK = "the presented certificate is over, revoked or renewed already"
OTHER_KEY = "the request does not prove the recorded key"
KIND = "site"
"""The kind in the name of an agent: `spiffe://<trust domain>/site/<id of the agent>`."""

log = structlog.get_logger("issuer")


async def issue_pending_of_agents(database: Database, authority: NodeAuthority) -> int:
    """Decide the oldest pending requests, each in a transaction; return how many were decided here."""
    async with database.reading() as reading:
        pending = await certificate_requests.pending_requests(reading, BATCH_MAX, Holder.SITE_AGENT)
    decided = 0
    for request, agent_id in pending:
        try:
            decided += await issue_to_agent(database, authority, request, agent_id)
        except (TransactionConflict, OperationInProgress):
            log.info("request_left", request=str(request), site_agent=str(agent_id))
    return decided


async def issue_to_agent(database: Database, authority: NodeAuthority, request: UUID, agent_id: UUID) -> bool:
    """Sign or refuse one request; False if another issuer has decided it. Raises `TransactionConflict`, `OperationInProgress`."""
    async with database.transaction() as tx:
        await agents.lock_agent(tx, agent_id)
        found = await agents.read_request_to_sign(tx, request)
        if found is None:
            return False
        key = proven_key(found.csr_pem, found.key_sha256)
        refusal = None if found.is_current else NOT_CURRENT
        refusal = refusal or (None if found.extends_chain else NO_LINK) or (OTHER_KEY if key is None else None)
        if key is not None and refusal is None:
            await _sign(tx, authority, found, key)
        else:
            await certificate_requests.set_refused(tx, request, refusal or OTHER_KEY, Holder.SITE_AGENT)
            await _record(tx, found, "site.refuse_certificate", {"epoch": found.epoch, "refusal": refusal})
    return True


async def _sign(tx: Transaction, authority: NodeAuthority, found: AgentRequest, key: PublicKey) -> None:
    issued = authority.issue(key, found.agent_id, KIND, at=await read_clock(tx))
    await record_certificate(
        tx, found.agent_id, found.epoch, issued, predecessor=found.predecessor, holder=Holder.SITE_AGENT
    )
    await certificate_requests.set_issued(tx, found.id, issued.serial, Holder.SITE_AGENT)
    said = {"epoch": found.epoch, "serial": issued.serial, "predecessor": found.predecessor}
    await _record(tx, found, "site.issue_certificate", said)


async def _record(tx: Transaction, found: AgentRequest, action: str, detail: JsonObject) -> None:
    subject = f"site-agents/{found.agent_id}"
    await audit.record(tx, actor_of(found.agent_id), action, subject, detail, found.request_id)
