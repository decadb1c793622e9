"""`GET /v1/version`: a version for externally consistent reads."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.numbers import BigCount
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts

router = APIRouter(tags=["log"], responses=PROBLEM_RESPONSES)


class LogHead(BaseModel):
    """Where the log stands."""

    version: BigCount = Field(description="At least as new as every write that was acknowledged before the request")
    leader_id: str = Field(description="Which Postgres answers: its system identifier and timeline")


@router.get("/version", response_model=LogHead)
async def version(caller: Caller, parts: Parts) -> Response:
    """The newest version and the leader. It sequences what is waiting."""
    head = await parts.log_head.fresh()
    parts.context.database.note_version(head.version)
    return json_response({"version": head.version, "leader_id": head.leader_id})
