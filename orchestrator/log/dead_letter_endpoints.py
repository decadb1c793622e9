"""Events that a consumer of the log gave up on: look, retry, discard."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.log import queries as dead_letters
from orchestrator.log.commands.dead_letters import discard_dead_letter, retry_dead_letter
from orchestrator.log.schemas import DeadLetter, DeadLetterQuery, DiscardDeadLetter

router = APIRouter(prefix="/dead-letters", tags=["admin: dead letters"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=Page[DeadLetter])
async def list_all(query: Annotated[DeadLetterQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Dead letters, oldest first; settled ones too, until they are forgotten."""
    after, limit = identified_page(query, "dead letters")
    found = await dead_letters.list_dead_letters(
        parts.context.database, state=query.state, consumer=query.consumer, after=after, limit=limit
    )
    return json_response(page_of(found, query.limit, "dead letters", lambda letter: letter.id))


@router.get("/{dead_letter_id}", response_model=DeadLetter)
async def find(dead_letter_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One dead letter."""
    return json_response(await dead_letters.find_dead_letter(parts.context.database, dead_letter_id))


@router.post("/{dead_letter_id}/retry", status_code=202, response_model=DeadLetter)
async def retry(dead_letter_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have its consumer handle the event again."""
    return answer_response(await retry_dead_letter(write.context, write.operation(), write.actor, dead_letter_id))


@router.post("/{dead_letter_id}/discard", response_model=DeadLetter)
async def discard(dead_letter_id: UUID, body: DiscardDeadLetter, write: AdminWrite) -> Response:
    """Say that nobody need handle the event; on the record."""
    return answer_response(
        await discard_dead_letter(write.context, write.operation(body), write.actor, dead_letter_id, body.reason)
    )
