"""Operators' routes of the log: consumers (list, forget) and dead letters (list, retry, discard)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import NAME_PATTERN, Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, named_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.log.commands import discard_dead_letter, forget_consumer, retry_dead_letter
from orchestrator.log.queries import find_dead_letter, list_consumers, list_dead_letters
from orchestrator.log.schemas import DeadLetter, DeadLetterQuery, DiscardDeadLetter, ForgetConsumer, LogConsumer
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_TENANT, OPERATOR_ADMINS

consumers = APIRouter(prefix="/consumers", tags=["admin: consumers"], responses=PROBLEM_RESPONSES)
dead_letters = APIRouter(prefix="/dead-letters", tags=["admin: dead letters"], responses=PROBLEM_RESPONSES)


@consumers.get("", response_model=Page[LogConsumer])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all_consumers(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """List the consumers, by name."""
    after, limit = named_page(query, "consumers")
    found = await list_consumers(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "consumers", lambda consumer: consumer.consumer))


@consumers.post("/{consumer}/forget", response_model=LogConsumer)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def forget(
    consumer: Annotated[str, Path(pattern=NAME_PATTERN)], body: ForgetConsumer, write: AdminWrite
) -> Response:
    """Forget a consumer that will not return: the log is no longer kept for it."""
    return answer_response(
        await forget_consumer(write.context, write.operation(body), write.actor, consumer, body.reason)
    )


@dead_letters.get("", response_model=Page[DeadLetter])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all_dead_letters(
    query: Annotated[DeadLetterQuery, Query()], caller: AdminCaller, parts: Parts
) -> Response:
    """List dead letters, oldest first, including settled ones until they are deleted."""
    after, limit = identified_page(query, "dead letters")
    found = await list_dead_letters(
        parts.context.database, state=query.state, consumer=query.consumer, after=after, limit=limit
    )
    return json_response(page_of(found, query.limit, "dead letters", lambda letter: letter.id))


@dead_letters.get("/{dead_letter_id}", response_model=DeadLetter)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def get_dead_letter(dead_letter_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """Return one dead letter."""
    return json_response(await find_dead_letter(parts.context.database, dead_letter_id))


@dead_letters.post("/{dead_letter_id}/retry", status_code=202, response_model=DeadLetter)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def retry(dead_letter_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Ask the consumer to handle the event again."""
    return answer_response(await retry_dead_letter(write.context, write.operation(), write.actor, dead_letter_id))


@dead_letters.post("/{dead_letter_id}/discard", response_model=DeadLetter)
@requires(tenant=NO_TENANT, operator=OPERATOR_ADMINS)
async def discard(dead_letter_id: UUID, body: DiscardDeadLetter, write: AdminWrite) -> Response:
    """Discard a dead letter: its event is not handled; the reason is audited."""
    return answer_response(
        await discard_dead_letter(write.context, write.operation(body), write.actor, dead_letter_id, body.reason)
    )
