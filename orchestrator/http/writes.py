"""The common part of every write of the API: the caller, the operation, the response."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import orjson
from cryptography.exceptions import InvalidTag
from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from orchestrator import tracing
from orchestrator.http.authentication import authenticate, require_admin, require_tenant
from orchestrator.http.operation_keys import IdempotencyKey, answer_response, operation_in
from orchestrator.http.services import Parts, Services
from orchestrator.operations.execution import Context
from orchestrator.operations.rules import SecretNotShownAgain
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor, Principal


@dataclass(frozen=True, slots=True)
class Write:
    """One write under way."""

    request: Request
    caller: Principal
    parts: Services
    key: str | None

    @property
    def context(self) -> Context:
        """What commands work with."""
        return self.parts.context

    @property
    def actor(self) -> Actor:
        """The caller as the cause."""
        return self.caller.actor

    def operation(self, content: BaseModel | None = None) -> Operation:
        """The operation of this write, with the fingerprint of its content."""
        return operation_in(
            self.request.scope, self.caller, self.key, content, self.parts.settings.operation_retention_seconds
        )

    async def traced(self, name: str, answering: Awaitable[Answer]) -> Answer:
        """The awaited answer; its time is recorded in the trace of the allocation that the answer shows."""
        began = datetime.now(UTC)
        answer = await answering
        if tracing.tracer() is not None and answer.status < 400:
            correlation_id = UUID(orjson.loads(answer.body)["correlation_id"])
            tracing.record_span(correlation_id, name, began, datetime.now(UTC), {"berth.replayed": answer.replayed})
        return answer

    def sealer(self) -> Sealer:
        """Seals secrets in answers for this caller."""
        return sealer_of(self.request)


def sealer_of(request: Request) -> Sealer:
    """Seals secrets for the caller of this request, and opens what was sealed for the same caller."""
    _, _, bearer = request.headers.get("authorization", "").partition(" ")
    return Sealer(bearer.strip())


def unsealed_response(write: Write, answer: Answer, member: str) -> Response:
    """The answer with its secret in the clear, fresh or replayed. Raises `SecretNotShownAgain` to another token."""
    if answer.status >= 400:
        return answer_response(answer)
    document = orjson.loads(answer.body)
    sealed = document.pop(member)
    try:
        document[member] = write.sealer().open(sealed)
    except InvalidTag as error:
        # An API key always has the same principal; only an OIDC token of a retry can have another one.
        raise SecretNotShownAgain(
            f"this was done before, and `{member}` was returned to another token of yours; it is not shown again",
            answer=document,
        ) from error
    response = answer_response(Answer(answer.status, orjson.dumps(document).decode(), answer.replayed))
    response.headers["cache-control"] = "no-store"
    return response


async def _by_admin(
    request: Request, parts: Parts, caller: Annotated[Principal, Depends(require_admin)], key: IdempotencyKey = None
) -> Write:
    return Write(request, caller, parts, key)


async def _by_tenant(
    request: Request, parts: Parts, caller: Annotated[Principal, Depends(require_tenant)], key: IdempotencyKey = None
) -> Write:
    return Write(request, caller, parts, key)


async def _by_anyone(
    request: Request, parts: Parts, caller: Annotated[Principal, Depends(authenticate)], key: IdempotencyKey = None
) -> Write:
    return Write(request, caller, parts, key)


AnyWrite = Annotated[Write, Depends(_by_anyone)]
AdminWrite = Annotated[Write, Depends(_by_admin)]
TenantWrite = Annotated[Write, Depends(_by_tenant)]
