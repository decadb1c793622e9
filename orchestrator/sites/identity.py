"""Which agent of a site calls: read from its verified certificate, checked against the database on each call (DESIGN §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from orchestrator.http.query_parameters import refuse_unknown_parameters
from orchestrator.http.services import Parts
from orchestrator.nodes.certificates import node_identity
from orchestrator.sites.queries import find_agent_standing

KIND = "site"


@dataclass(frozen=True, slots=True)
class CallingAgent:
    """An agent whose certificate counted when the request came in. `serial` is lower-case hex."""

    agent_id: UUID
    epoch: int
    serial: str


async def calling_agent(request: Request, parts: Parts) -> CallingAgent:
    """The caller, or `Unauthenticated`; then `Invalid` for a query parameter that the path does not know."""
    identity = node_identity(request.scope.get("state", {}).get("peer"), parts.settings.trust_domain, KIND)
    standing = await find_agent_standing(parts.context.database, identity.node_id, identity.serial)
    refuse_unknown_parameters(request)
    return CallingAgent(standing.node_id, standing.epoch, identity.serial)


SiteCaller = Annotated[CallingAgent, Depends(calling_agent)]
"""The agent that calls."""
