"""What operators register beside nodes: licence seats, addresses, InfiniBand partitions."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.operation_keys import answer_response
from orchestrator.api.schemas.reservations import CreateResource, Resource
from orchestrator.api.writes import AdminWrite
from orchestrator.commands.create_resource import create_resource

router = APIRouter(prefix="/resources", tags=["admin: resources"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, response_model=Resource)
async def create(body: CreateResource, write: AdminWrite) -> Response:
    """Register a resource under an id of the operator's own."""
    return answer_response(await create_resource(write.context, write.operation(body), write.actor, body.id))
