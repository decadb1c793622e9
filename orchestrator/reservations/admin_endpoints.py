"""What operators register beside nodes: licence seats, addresses, InfiniBand partitions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.writes import AdminWrite
from orchestrator.reservations.commands.resources import create_resource, put_back_resource, take_out_resource
from orchestrator.reservations.resource_names import RESOURCE_ID_PATTERN
from orchestrator.reservations.schemas import CreateResource, Resource, TakeOutOfService

router = APIRouter(prefix="/resources", tags=["admin: resources"], responses=PROBLEM_RESPONSES)

RegisteredPath = Annotated[str, Path(pattern=RESOURCE_ID_PATTERN, description="a registered one; nodes are cordoned")]


@router.post("", status_code=201, response_model=Resource)
async def create(body: CreateResource, write: AdminWrite) -> Response:
    """Register a resource under an id of the operator's own."""
    return answer_response(await create_resource(write.context, write.operation(body), write.actor, body.id))


@router.post("/{resource_id}/out-of-service", response_model=Resource)
async def take_out(resource_id: RegisteredPath, body: TakeOutOfService, write: AdminWrite) -> Response:
    """Let nobody new have it; who holds it keeps it."""
    taken = take_out_resource(write.context, write.operation(body), write.actor, resource_id, reason=body.reason)
    return answer_response(await taken)


@router.post("/{resource_id}/in-service", response_model=Resource)
async def put_back(resource_id: RegisteredPath, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Let it be held again."""
    return answer_response(await put_back_resource(write.context, write.operation(), write.actor, resource_id))
