"""Consumers of the log: look who keeps it, and forget who will not come again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import AdminCaller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.operation_keys import answer_response
from orchestrator.api.schemas.consumers import ForgetConsumer, LogConsumer
from orchestrator.api.schemas.fields import NAME_PATTERN
from orchestrator.api.services import Parts
from orchestrator.api.writes import AdminWrite
from orchestrator.commands.forget_consumer import forget_consumer
from orchestrator.queries.consumers import list_consumers

router = APIRouter(prefix="/consumers", tags=["admin: consumers"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=list[LogConsumer])
async def list_all(caller: AdminCaller, parts: Parts) -> Response:
    """Every consumer, who is the furthest behind first."""
    return json_response(await list_consumers(parts.context.database))


@router.post("/{consumer}/forget", response_model=LogConsumer)
async def forget(
    consumer: Annotated[str, Path(pattern=NAME_PATTERN)], body: ForgetConsumer, write: AdminWrite
) -> Response:
    """Say that it will not come again: nothing of the log is kept for it any more."""
    return answer_response(
        await forget_consumer(write.context, write.operation(body), write.actor, consumer, body.reason)
    )
