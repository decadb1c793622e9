"""Consumers of the log: look who keeps it, and forget who will not come again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import NAME_PATTERN
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.log.commands.consumers import forget_consumer
from orchestrator.log.queries import list_consumers
from orchestrator.log.schemas import ForgetConsumer, LogConsumer

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
