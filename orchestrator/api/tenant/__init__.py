"""The tenant's API: allocations, reservations, keys, and what can be rented."""

from fastapi import APIRouter

from orchestrator.api.tenant import (
    allocation_reads,
    allocations,
    balance,
    catalogue,
    reservations,
    resources,
    ssh_keys,
    usage,
    webhooks,
)

router = APIRouter(prefix="/api/v1")
for part in (allocations, allocation_reads, reservations, resources, catalogue, ssh_keys, usage, balance, webhooks):
    router.include_router(part.router)
