"""Orphans of a node: look, adopt, destroy."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes import queries as orphans
from orchestrator.nodes.commands.orphans import adopt_orphan, destroy_orphan
from orchestrator.nodes.orphan_schemas import AdoptOrphan, DestroyOrphan, Orphan, OrphanQuery
from orchestrator.nodes.store.orphan_documents import orphan_document
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}/orphans", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=Page[Orphan])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(
    node_id: UUID, query: Annotated[OrphanQuery, Query()], caller: AdminCaller, parts: Parts
) -> Response:
    """What the node holds that nothing explains, oldest first."""
    kind = f"orphans of {node_id}"
    after, limit = identified_page(query, kind)
    found = await orphans.list_orphans_of_node(
        parts.context.database, node_id, every=query.every, after=after, limit=limit
    )
    page = page_of(found, query.limit, kind, lambda orphan: orphan.id)
    return json_response({**page, "items": [orphan_document(orphan) for orphan in page["items"]]})


@router.post("/{orphan_id}/adopt", response_model=Orphan)
@requires(tenant=NO_TENANT, operator=FLEET)
async def adopt(node_id: UUID, orphan_id: UUID, body: AdoptOrphan, write: AdminWrite) -> Response:
    """Leave it where it is, for an allocation of this node or without one; its slots stay out of service."""
    answer = await adopt_orphan(
        write.context, write.operation(body), write.actor, node_id, orphan_id,
        reason=body.reason, allocation_id=body.allocation_id,
    )  # fmt: skip
    return answer_response(answer)


@router.post("/{orphan_id}/destroy", status_code=202, response_model=Orphan)
@requires(tenant=NO_TENANT, operator=FLEET)
async def destroy(node_id: UUID, orphan_id: UUID, body: DestroyOrphan, write: AdminWrite) -> Response:
    """Have the node remove it; its slots serve again when the node has proven that it is gone."""
    answer = await destroy_orphan(
        write.context, write.operation(body), write.actor, node_id, orphan_id, reason=body.reason
    )
    return answer_response(answer)
