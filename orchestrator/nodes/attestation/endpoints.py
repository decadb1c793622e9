"""Pools of nodes and the attestation policy of each (admin zone)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, bounded_integer, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes import queries
from orchestrator.nodes.attestation.schemas import Pool, PoolId, SetPoolAttestation
from orchestrator.nodes.commands.pools import set_pool_attestation
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/pools", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=Page[Pool])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Pools in the order in which their first nodes were registered."""
    after = place_after(query.cursor, "pools", bounded_integer, 0)
    found = await queries.list_pools(parts.context.database, after=after, limit=query.limit + 1)
    page = page_of(found, query.limit, "pools", lambda pool: pool.id)
    return json_response({**page, "items": [asdict(one) for one in page["items"]]})


@router.put("/{pool_id}/attestation", response_model=Pool)
@requires(tenant=NO_TENANT, operator=FLEET)
async def put_attestation(pool_id: PoolId, body: SetPoolAttestation, write: AdminWrite) -> Response:
    """Say whether the nodes of a pool must prove that they have their TPMs; a node with its own policy keeps that."""
    answer = await set_pool_attestation(write.context, write.operation(body), write.actor, pool_id, body.policy)
    return answer_response(answer)
