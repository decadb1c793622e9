"""The log over HTTP: its version, and the feed of its events."""

from fastapi import APIRouter

from orchestrator.api.log import commits, keys, subscribing, versions

router = APIRouter(prefix="/v1")
for part in (versions, subscribing, commits, keys):
    router.include_router(part.router)
