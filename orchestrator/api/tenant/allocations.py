"""`POST /api/v1/allocations`: where an allocation begins (DESIGN §4, step 1)."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, Request
from fastapi.responses import Response

from orchestrator.api.authentication import TenantCaller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.operation_keys import IdempotencyKey, answer_response, operation_of
from orchestrator.api.schemas.allocations import CreateAllocation, CreatedAllocation
from orchestrator.api.services import services_of
from orchestrator.store.placing import Create

router = APIRouter(tags=["allocations"])


@router.post("/allocations", status_code=201, response_model=CreatedAllocation, responses=PROBLEM_RESPONSES)
async def create_allocation(
    body: CreateAllocation, request: Request, caller: TenantCaller, idempotency_key: IdempotencyKey = None
) -> Response:
    """Ask for GPUs. The answer comes as soon as they are the tenant's for certain; they are usable once `active`."""
    assert caller.tenant_id is not None
    parts = await services_of(request)  # called, not declared: each declared dependency costs the hot path 30 us
    retention_seconds = parts.settings.operation_retention_seconds
    operation = operation_of(request, caller, idempotency_key, body.model_dump(mode="json"), retention_seconds)
    create = Create(
        operation=operation,
        tenant_id=caller.tenant_id,
        actor_id=str(caller.key_id),
        sku=body.sku,
        gpus=body.gpus,
        region=body.region,
        image=body.image,
        ssh_key_ids=tuple(dict.fromkeys(body.ssh_key_ids)),
        name=body.name,
        labels=body.labels,
        user_data=body.user_data,
        correlation_id=uuid.uuid4(),
    )
    return answer_response(await parts.gatherer.create(create))
