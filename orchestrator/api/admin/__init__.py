"""The operator's API: the fleet, the tenants, the catalogue, and the last word on an allocation."""

from fastapi import APIRouter

from orchestrator.api.admin import (
    allocations,
    api_keys,
    audit,
    balances,
    catalogue,
    consumers,
    dead_letters,
    nodes,
    orphans,
    resources,
    tenants,
)

router = APIRouter(prefix="/api/v1/admin")
for part in (
    tenants,
    balances,
    api_keys,
    catalogue,
    nodes,
    resources,
    orphans,
    allocations,
    audit,
    dead_letters,
    consumers,
):
    router.include_router(part.router)
