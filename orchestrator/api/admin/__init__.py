"""The operator's API: the fleet, the tenants, the catalogue, and the last word on an allocation."""

from fastapi import APIRouter

router = APIRouter(prefix="/api/v1/admin")
