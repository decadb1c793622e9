"""The log over HTTP: its version, the feed of its events, and what of it is kept."""

from fastapi import APIRouter

from orchestrator.api.log import commits, keys, retention, subscribing, versions

router = APIRouter(prefix="/v1")
for part in (versions, subscribing, commits, keys, retention):
    router.include_router(part.router)
