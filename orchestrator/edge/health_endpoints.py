"""`GET /ok` on every listener; `GET /metrics` on the metrics listener alone."""

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


@metrics_router.get("/metrics", response_class=PlainTextResponse, tags=["health"])
@without_roles
async def metrics() -> Response:
    """Prometheus text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
