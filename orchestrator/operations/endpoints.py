"""`GET /api/v1/operations/{key}`: the outcome of a write, for its tenant, or for the operator that sent it (P12)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from cryptography.exceptions import InvalidTag
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from berth.process.json_objects import JsonObject
from orchestrator.http.answers import json_response
from orchestrator.http.audited.actions import FENCE
from orchestrator.http.audited.callers import audited_caller
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import IDEMPOTENCY_KEY_PATTERN, PROBLEM_RESPONSES
from orchestrator.http.operation_keys import usable_key
from orchestrator.http.services import Parts
from orchestrator.http.writes import sealer_of
from orchestrator.operations.commands import OperationOutcome, Question, ask_operation
from orchestrator.operations.queries import find_position
from orchestrator.operations.schemas import Operation, OperationQuery
from orchestrator.operations.sealing import SEALED_MEMBERS, Sealer
from orchestrator.operations.states import DEFINITE_STATES, OperationState
from orchestrator.operations.store.positions import OperationPosition
from orchestrator.operations.store.questions import Known
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_WRITERS

router = APIRouter(prefix="/api/v1", tags=["operations"], responses=PROBLEM_RESPONSES)
VERSIONED_CODES = frozenset({"committed", "not_committed"})
"""Codes of transactions of keys and values: their response also contains the position, which is stored apart from the body."""
DETAILS = {
    OperationState.PENDING: "a request with this key is being carried out; ask again",
    OperationState.COMMITTED: "it was done, once; this is what it was answered",
    OperationState.REJECTED: "it was refused, and changed nothing; this is what it was answered",
    OperationState.UNKNOWN: "no request with this key was done within the retention window, and none will be from now on:"
    " a late one is refused (operation_fenced)",
    OperationState.RETIRED: "it was begun before the retention window; whether it was done is no longer known",
}
OperationKeyPath = Annotated[
    str,
    Path(
        description="The key as it was sent, percent-encoded where the path needs it.",
        json_schema_extra={"pattern": IDEMPOTENCY_KEY_PATTERN},
    ),
]


@router.get("/operations/{key:path}", response_model=Operation)
@requires(tenant=TENANT_WRITERS, operator=EVERY_OPERATOR, writes=True)
async def ask(
    key: OperationKeyPath,
    query: Annotated[OperationQuery, Query()],
    request: Request,
    caller: Caller,
    parts: Parts,
) -> Response:
    """What became of the write with this key. A definite answer stays true: what is `unknown` never runs any more."""
    question = Question(
        scope=caller.scope,
        key=usable_key(key),
        tenant_id=caller.tenant_id,
        since=query.since,
        request_id=request.scope["state"]["request_id"],
        caller=audited_caller(request.scope, caller, FENCE),
    )
    outcome = await ask_operation(parts.context, question)
    position = await find_position(parts.context.database, question.scope, question.key, parts.log_head.fresh)
    response = json_response(_document(question.key, outcome, position, sealer_of(request)))
    response.headers["cache-control"] = "no-store"
    if outcome.state is OperationState.PENDING:
        response.headers["retry-after"] = "1"
    return response


def _document(key: str, outcome: OperationOutcome, position: OperationPosition | None, sealer: Sealer) -> JsonObject:
    known = outcome.known
    return {
        "key": key,
        "state": outcome.state,
        "definite": outcome.state in DEFINITE_STATES,
        "detail": DETAILS[outcome.state],
        "status": None if known is None else known.status,
        "code": None if known is None else known.code,
        "result": None if known is None else _result(known, position, sealer),
        "version": None if position is None else position.version,
        "subject_id": None if known is None else known.subject_id,
        "created_at": None if known is None else known.created_at,
        "retire_after": None if known is None else known.retire_after,
        "server_time": datetime.now(UTC),
    }


def _result(known: Known, position: OperationPosition | None, sealer: Sealer) -> Any:
    """The first response. A secret in it is shown to its first receiver alone."""
    result = orjson.loads(known.body) if known.body else None
    if known.code in VERSIONED_CODES and position is not None:
        result = (result or {}) | {"version": position.version, "leader_id": position.leader_id}
    if isinstance(result, dict):
        for member in SEALED_MEMBERS:
            if isinstance(result.get(member), str):
                try:
                    result[member] = sealer.open(result[member])
                except (InvalidTag, ValueError):
                    del result[member]
    return result
