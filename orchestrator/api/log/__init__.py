"""The log over HTTP: its version, the feed of its events, notifications of them, and what of it is kept."""

from fastapi import APIRouter

from orchestrator.api.log import commits, keys, notifying, retention, subscribing, versions

log = APIRouter(prefix="/v1")
for part in (versions, subscribing, commits, keys, retention):
    log.include_router(part.router)
router = APIRouter()
for zone in (log, notifying.router):
    router.include_router(zone)
