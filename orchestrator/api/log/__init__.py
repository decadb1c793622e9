"""The log over HTTP: its version, and the feed of its events."""

from fastapi import APIRouter

from orchestrator.api.log import versions

router = APIRouter(prefix="/v1")
for part in (versions,):
    router.include_router(part.router)
