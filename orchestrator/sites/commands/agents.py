"""Enrol and revoke agents of sites, and renew their certificates: as for nodes, and by the same statements."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.certificate_waits import wait_for_certificate
from orchestrator.nodes.certificates import key_digest, read_signing_request
from orchestrator.nodes.store import certificates, enrolment
from orchestrator.nodes.store.certificate_requests import request_of_link
from orchestrator.nodes.store.certificates import CONFLICT, VALID_PER_NODE_MAX
from orchestrator.nodes.store.holders import Holder
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import (
    IdentityConflict,
    InvalidState,
    OperationInProgress,
    TooManyCertificates,
    Unauthenticated,
)
from orchestrator.sites.documents import agent_document
from orchestrator.sites.rules import AGENTS_MAX, actor_of
from orchestrator.sites.store import agents, sites
from orchestrator.tenants.principals import Actor, Principal
from orchestrator.times import rfc3339

TOKEN_BYTES = 32
_AGENT = Holder.SITE_AGENT


async def invite_agent(
    context: Context, operation: Operation, principal: Principal, sealer: Sealer, site_id: UUID, *,
    name: str, hardware_id: str | None, valid_seconds: float, pin: str | None,
) -> Answer:  # fmt: skip
    """201 with a one-time token, sealed for the caller, for the agent of this name, which is made if there is none.

    A revoked agent may enrol again with it. Refusals: `NotFound`; `InvalidState` if the site has as many agents as it may.
    """
    token = f"enrol2.{pin or '-'}.{secrets.token_urlsafe(TOKEN_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        await sites.lock_site(tx, site_id)
        found = await agents.lock_agent_of_name(tx, site_id, name)
        if found is None and await agents.count_agents(tx, site_id) >= AGENTS_MAX:
            raise InvalidState(
                f"the site has {AGENTS_MAX} agents, revoked ones included; enrol one of these again", state="full"
            )
        agent_id = await agents.insert_agent(tx, site_id, name) if found is None else found.id
        await agents.register_again(tx, agent_id)
        expires_at = await enrolment.insert_token(
            tx, node_id=agent_id, token_hash=hashlib.sha256(token.encode()).digest(), hardware_id=hardware_id,
            created_by=principal.id, valid_seconds=valid_seconds, holder=_AGENT,
        )  # fmt: skip
        said = {"agent_id": str(agent_id), "name": name, "hardware_id": hardware_id, "expires_at": rfc3339(expires_at)}
        await audit.record(tx, principal.actor, "site.invite_agent", f"sites/{site_id}", said, operation.request_id)
        body = {"agent_id": str(agent_id), "token": sealer.seal(token), "expires_at": expires_at}
        return Done(201, body, agent_id)

    return await run_once(context, operation, effect, None)


async def revoke_agent(
    context: Context, operation: Operation, actor: Actor, site_id: UUID, agent_id: UUID, *, reason: str
) -> Answer:
    """200 with the agent: its certificates and tokens count no more, and what was sealed to it is deleted.

    It knows the passwords that it has opened: rotate them. It may still act until its lease ends; no other agent does before.
    """

    async def effect(tx: Transaction) -> Done:
        await sites.lock_site(tx, site_id)
        await agents.lock_agent(tx, agent_id, site_id)
        revoked = await certificates.revoke_certificates(tx, agent_id, reason, _AGENT)
        await agents.retire_agent(tx, agent_id)
        said = {"agent_id": str(agent_id), "reason": reason, "certificates": revoked}
        payload = {"site_id": site_id, **said}
        await _announce(tx, EventType.SITE_AGENT_REVOKED, agent_id, payload, operation.request_id)
        await audit.record(tx, actor, "site.revoke_agent", f"sites/{site_id}", said, operation.request_id)
        return Done(200, agent_document(await agents.read_agent(tx, agent_id)), agent_id)

    return await run_once(context, operation, effect, None)


@dataclass(frozen=True, slots=True)
class Certified:
    """The certificate of an agent, its epoch, and the database's time."""

    agent_id: UUID
    epoch: int
    certificate_pem: str
    server_time: datetime


async def enrol_agent(
    context: Context, *, token: str, hardware_id: str, csr_pem: str, request_id: str, wait_seconds_max: float
) -> Certified:
    """The agent in its next epoch, with one live certificate, which the issuer signs after the commit.

    The same token with the same key returns the same. Raises `Unauthenticated` for a token that is unknown, used, over, or
    another machine's; `Invalid` for an unusable request; `CertificatePending`.
    """
    token_hash = hashlib.sha256(token.encode()).digest()
    try:
        async with context.database.transaction() as tx:
            agent_id, epoch, request = await _enrol(tx, token_hash, hardware_id, csr_pem, request_id)
    except TransactionConflict as error:
        raise OperationInProgress("the agent is being changed by another request; try again") from error
    pem, server_time = await wait_for_certificate(context.database, request, wait_seconds_max, _AGENT)
    return Certified(agent_id, epoch, pem, server_time)


async def _enrol(
    tx: Transaction, token_hash: bytes, hardware_id: str, csr_pem: str, request_id: str
) -> tuple[UUID, int, UUID]:
    agent_id = await enrolment.lock_node_of_token(tx, token_hash, _AGENT)
    if agent_id is None:
        raise Unauthenticated(enrolment.NOT_VALID)
    key_sha256 = key_digest(read_signing_request(csr_pem))
    if not await enrolment.consume_token(tx, agent_id, token_hash, hardware_id, _AGENT):
        before = await enrolment.recorded_before(tx, agent_id, token_hash, hardware_id, key_sha256, _AGENT)
        if before is None:
            raise Unauthenticated(enrolment.NOT_VALID)
        return agent_id, before.epoch, before.request
    name, epoch, _ = await enrolment.enrol_node(tx, agent_id, hardware_id, _AGENT)
    await certificates.revoke_certificates(tx, agent_id, "the agent enrolled again", _AGENT)
    request = await agents.record_agent_request(
        tx, agent_id, epoch, predecessor=None, key_sha256=key_sha256, csr_pem=csr_pem, request_id=request_id
    )
    said = {"name": name, "epoch": epoch, "hardware_id": hardware_id}
    await _announce(tx, EventType.SITE_AGENT_ENROLLED, agent_id, {"agent_id": agent_id, **said}, request_id)
    await audit.record(tx, actor_of(agent_id), "site.enrol_agent", f"site-agents/{agent_id}", said, request_id)
    return agent_id, epoch, request


async def renew_agent_certificate(
    context: Context, agent_id: UUID, serial: str, *, csr_pem: str, request_id: str, wait_seconds_max: float
) -> Certified:
    """The successor of the presented certificate, for the key of the signing request; the same again for the same key.

    Another key in the place of a successor is a fork: it suspends the agent. Raises `Invalid`, `Unauthenticated` if the
    presented certificate was revoked meanwhile, `IdentityConflict`, `TooManyCertificates`, `CertificatePending`.
    """
    key_sha256 = key_digest(read_signing_request(csr_pem))
    request: UUID | None = None
    try:
        async with context.database.transaction() as tx:
            await agents.lock_agent(tx, agent_id)
            standing = await certificates.require_standing(tx, agent_id, serial, _AGENT)
            pem = (await certificates.read_link(tx, serial, _AGENT)).pem_for(key_sha256)
            if pem is None:
                request = await _request_successor(
                    tx, agent_id, standing.epoch, serial, key_sha256, csr_pem, request_id
                )
            server_time = await read_clock(tx)
    except TransactionConflict as error:
        raise OperationInProgress("the agent is being changed by another request; try again") from error
    if pem is None and request is None:
        raise IdentityConflict(CONFLICT)
    if request is not None:
        pem, server_time = await wait_for_certificate(context.database, request, wait_seconds_max, _AGENT)
    assert pem is not None
    return Certified(agent_id, standing.epoch, pem, server_time)


async def _request_successor(
    tx: Transaction, agent_id: UUID, epoch: int, serial: str, key_sha256: bytes, csr_pem: str, request_id: str
) -> UUID | None:
    """The request for the successor, recorded once; None if another key has its place, which suspends the agent."""
    link = await certificates.read_link(tx, serial, _AGENT)
    recorded = await request_of_link(tx, agent_id, epoch, serial, _AGENT)
    if recorded is not None and recorded.key_sha256 == key_sha256 and link.successor_key_sha256 is None:
        return recorded.id
    if link.successor_key_sha256 is not None or recorded is not None:
        name = await agents.suspend_agent(tx, agent_id)
        said = {"name": name, "epoch": epoch, "serial": serial}
        await _announce(tx, EventType.SITE_IDENTITY_CONFLICT, agent_id, {"agent_id": agent_id, **said}, request_id)
        await audit.record(tx, actor_of(agent_id), "site.refuse_renewal", f"site-agents/{agent_id}", said, request_id)
        return None
    if link.valid >= VALID_PER_NODE_MAX:
        raise TooManyCertificates(
            f"at most {VALID_PER_NODE_MAX} certificates of an agent are valid at once; renew when one has ended"
        )
    return await agents.record_agent_request(
        tx, agent_id, epoch, predecessor=serial, key_sha256=key_sha256, csr_pem=csr_pem, request_id=request_id
    )


async def _announce(
    tx: Transaction, event_type: EventType, agent_id: UUID, payload: JsonObject, request_id: str | None
) -> None:
    await append_event(tx, Event(event_type, f"site-agents/{agent_id}", uuid4(), None, payload, None, request_id))
