"""The virtual devices of an allocation's guest, for operators."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from node_agent.wire.devices import GuestDevice
from orchestrator.allocations.queries import find_devices
from orchestrator.allocations.states import AllocationState
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT

router = APIRouter(prefix="/allocations", tags=["admin: allocations"], responses=PROBLEM_RESPONSES)


class AllocationDevices(BaseModel):
    """The virtual devices of a guest, as its node read them from the running guest at its last start by a task."""

    allocation_id: UUID
    status: AllocationState
    devices: list[GuestDevice] | None = Field(description="null: unknown")
    reason: str | None = Field(description="Why devices are unknown, or there are none")
    task_id: UUID | None = Field(description="The task that started the guest")
    read_at: datetime | None


@router.get("/{allocation_id}/devices", response_model=AllocationDevices)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(allocation_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The virtual devices of an allocation's guest. One that was archived is 410 `archived`."""
    return json_response(await find_devices(parts.context.database, allocation_id))
