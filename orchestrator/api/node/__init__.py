"""The node's API: mTLS only; who is calling comes from the certificate, never from the path or a header (DESIGN §8)."""

from fastapi import APIRouter

from orchestrator.api.node import certificate, tasks

router = APIRouter(prefix="/node/v1", tags=["node"])
for part in (tasks, certificate):
    router.include_router(part.router)
