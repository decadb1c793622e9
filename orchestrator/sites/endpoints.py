"""Sites and their agents, for operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite, unsealed_response
from orchestrator.sites import queries
from orchestrator.sites.commands.agents import invite_agent, revoke_agent
from orchestrator.sites.commands.sites import create_site, remove_site
from orchestrator.sites.schemas import SITE_PATTERN, AgentToken, CreateSite, InviteAgent, RevokeAgent, Site, SiteAgent
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/sites", tags=["admin: sites"], responses=PROBLEM_RESPONSES)

IdOrName = Annotated[str, Path(pattern=SITE_PATTERN, description="id or name")]


@router.post("", status_code=201, response_model=Site)
@requires(tenant=NO_TENANT, operator=FLEET)
async def create(body: CreateSite, write: AdminWrite) -> Response:
    """Create a site; its agents enrol with tokens."""
    key = bytes.fromhex(body.recovery_key)
    return answer_response(
        await create_site(write.context, write.operation(body), write.actor, name=body.name, recovery_key=key)
    )


@router.get("", response_model=Page[Site])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The sites, with their agents."""
    after, limit = identified_page(query, "sites")
    found, documents = await queries.list_sites(parts.context.database, after, limit)
    page = page_of(found, query.limit, "sites", lambda site: site.id)
    return json_response({**page, "items": [documents[site.id] for site in page["items"]]})


@router.get("/{site_id}", response_model=Site)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(site_id: IdOrName, caller: AdminCaller, parts: Parts) -> Response:
    """One site by id or name, with its agents."""
    return json_response(await queries.find_site(parts.context.database, _id_or_name(site_id)))


def _id_or_name(text: str) -> UUID | str:
    try:
        return UUID(text)
    except ValueError:
        return text


@router.delete("/{site_id}", status_code=204)
@requires(tenant=NO_TENANT, operator=FLEET)
async def remove(site_id: UUID, write: AdminWrite) -> Response:
    """Remove a site whose agents are all revoked and to which no BMC belongs."""
    return answer_response(await remove_site(write.context, write.operation(), write.actor, site_id))


@router.post("/{site_id}/agents", status_code=201, response_model=AgentToken)
@requires(tenant=NO_TENANT, operator=FLEET)
async def invite(site_id: UUID, body: InviteAgent, write: AdminWrite) -> Response:
    """A one-time token for an agent of the site, which is made if there is none of this name; shown in this answer only."""
    answer = await invite_agent(
        write.context, write.operation(body), write.caller, write.sealer(), site_id,
        name=body.name, hardware_id=body.hardware_id,
        valid_seconds=body.valid_seconds or write.parts.settings.enrolment_token_seconds, pin=write.parts.enrolment_pin,
    )  # fmt: skip
    return unsealed_response(write, answer, "token")


@router.post("/{site_id}/agents/{agent_id}/revoke", response_model=SiteAgent)
@requires(tenant=NO_TENANT, operator=FLEET)
async def revoke(site_id: UUID, agent_id: UUID, body: RevokeAgent, write: AdminWrite) -> Response:
    """Revoke an agent: its certificates and tokens count no more. Rotate the passwords that it knows after this."""
    operation = write.operation(body)
    return answer_response(
        await revoke_agent(write.context, operation, write.actor, site_id, agent_id, reason=body.reason)
    )
