"""`GET /ok` (readiness) and `GET /live` (liveness) on every listener; `GET /metrics` on the metrics listener alone."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from orchestrator.http.services import Parts
from orchestrator.tenants.required_roles import without_roles

router = APIRouter()
metrics_router = APIRouter()


@router.get("/ok", response_class=PlainTextResponse, tags=["health"])
@without_roles
async def ok(parts: Parts) -> str:
    """The process answers and the database can be asked; 503 otherwise."""
    await parts.schema.answer_for(parts.context.database, None)
    return "ok"


@router.get("/live", response_class=PlainTextResponse, tags=["health"])
@without_roles
async def live() -> str:
    """The process's event loop answers. No other server is asked: a restart of this process would mend none of them."""
    return "live"


@metrics_router.get("/metrics", response_class=PlainTextResponse, tags=["health"])
@without_roles
async def metrics() -> Response:
    """Prometheus text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
