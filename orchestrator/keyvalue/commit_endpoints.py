"""`POST /v1/commit` and `GET /v1/status`: transactions of keys and values (docs/kv.md)."""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from orchestrator.allocations.states import Principal
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response, operation_in, usable_key
from orchestrator.http.problem_documents import invalid_from
from orchestrator.http.services import Parts, Services
from orchestrator.http.writes import AnyWrite
from orchestrator.keyvalue import schemas
from orchestrator.keyvalue.queries import find_event, find_first_version, find_transaction
from orchestrator.keyvalue.rules import (
    OPERATORS_NAMESPACE,
    Precondition,
    RangeDelete,
    RangeInvalid,
    VersionInFuture,
    VersionMissing,
    Write,
    effect_of,
)
from orchestrator.keyvalue.store.transactions import Commit
from orchestrator.operations.commands import Question, ask_operation
from orchestrator.operations.states import OperationState
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Malformed, OperationInProgress, TooLarge
from orchestrator.settings import Settings


class CommitRoute(APIRoute):
    """What does not fit the schema is malformed here: 400, as in the source."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, with that difference."""
        handle = super().get_route_handler()

        async def handle_malformed(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                found = invalid_from(error.errors())
                raise Malformed(found.detail, **found.extra) from error

        return handle_malformed


router = APIRouter(tags=["log"], responses=PROBLEM_RESPONSES)
strict = APIRouter(route_class=CommitRoute)


@strict.post("/commit", response_model=schemas.CommitOutcome)
async def commit(body: schemas.CommitTransaction, write: AnyWrite) -> Response:
    """Commit a transaction of keys and values if its preconditions are satisfied; else tell which are not."""
    return answer_response(await commit_for(write.parts, write.request.scope, write.caller, body, write.key))


router.include_router(strict)


async def commit_for(
    parts: Services,
    scope: MutableMapping[str, Any],
    caller: Principal,
    body: schemas.CommitTransaction,
    key: str | None,
) -> Answer:
    """The answer to a commit. Raises the `Problem` that it met."""
    settings = parts.settings
    own = body.request_id
    if own is not None and len(own) < settings.kv_request_id_length_min:
        raise Malformed(f"request_id must have at least {settings.kv_request_id_length_min} characters")
    if key is not None:
        usable_key(key)
    operation = operation_in(
        scope, caller, own or key or str(uuid.uuid4()), body.model_dump(mode="json", exclude={"request_id"}),
        settings.operation_retention_seconds,
    )  # fmt: skip
    asked = _commit_of(body, caller, settings, operation)
    return await parts.gate.answer(operation, lambda: parts.commits.answer(asked))


def _commit_of(body: schemas.CommitTransaction, caller: Principal, settings: Settings, operation: Any) -> Commit:
    """Raises `TooLarge`, `RangeInvalid`, `VersionMissing`."""
    for what, number, bound in (
        ("operations", len(body.operations), settings.kv_operations_max),
        ("preconditions", len(body.preconditions), settings.kv_preconditions_max),
    ):
        if number > bound:
            raise TooLarge(f"a transaction may have at most {bound} {what}; this one has {number}")
    preconditions = tuple(_precondition_of(wanted, body.read_version, settings) for wanted in body.preconditions)
    versions = [wanted.version for wanted in preconditions]
    if body.read_version is not None:
        versions.append(body.read_version)
    payload: dict[str, Any] = {"operations": [asked.model_dump(mode="json") for asked in body.operations]}
    if caller.tenant_id is None:
        payload["principal_id"] = str(caller.id)
    _require_room_for(payload, settings)
    return Commit(
        operation=operation,
        namespace=namespace_of(caller),
        leader_id=body.leader_id,
        version_max=max(versions, default=None),
        preconditions=preconditions,
        effect=effect_of(_operation_of(asked, settings) for asked in body.operations),
        payload=payload,
        correlation_id=uuid.uuid4(),
        keys_max=settings.kv_namespace_keys_max,
        bytes_max=settings.kv_namespace_bytes_max,
    )


def namespace_of(caller: Principal) -> uuid.UUID:
    """Whose keys a caller sees: its tenant's, or those of the operators."""
    return OPERATORS_NAMESPACE if caller.tenant_id is None else caller.tenant_id


def _require_room_for(payload: dict[str, Any], settings: Settings) -> None:
    """The event must fit into the log. Postgres writes jsonb with a space after each comma and colon."""
    told = orjson.dumps(payload)
    if len(told) + told.count(b",") + told.count(b":") > settings.kv_transaction_bytes_max:
        raise TooLarge(f"the operations of a transaction may have at most {settings.kv_transaction_bytes_max} bytes")


def _precondition_of(
    wanted: schemas.PointRead | schemas.RangeRead, read_version: int | None, settings: Settings
) -> Precondition:
    version = read_version if wanted.version is None else wanted.version
    if version is None:
        raise VersionMissing("a precondition needs a version of its own, or the commit's read_version")
    shown = {**wanted.model_dump(mode="json"), "version": version}
    if isinstance(wanted, schemas.PointRead):
        return Precondition(version, _key(wanted.key, settings), None, shown)
    begin, end = _range(wanted.begin, wanted.end, settings)
    return Precondition(version, begin, end, shown)


def _operation_of(
    asked: schemas.WriteKey | schemas.DeleteKey | schemas.DeleteRange, settings: Settings
) -> Write | RangeDelete:
    if isinstance(asked, schemas.DeleteRange):
        return RangeDelete(*_range(asked.begin, asked.end, settings))
    if isinstance(asked, schemas.DeleteKey):
        return Write(_key(asked.key, settings), None)
    value = b64decode(asked.value)
    if len(value) > settings.kv_value_bytes_max:
        raise TooLarge(f"a value may have at most {settings.kv_value_bytes_max} bytes")
    return Write(_key(asked.key, settings), value)


def _key(text: str, settings: Settings) -> bytes:
    key = b64decode(text)
    if len(key) > settings.kv_key_bytes_max:
        raise TooLarge(f"a key may have at most {settings.kv_key_bytes_max} bytes")
    return key


def _range(begin: str, end: str, settings: Settings) -> tuple[bytes, bytes]:
    first, last = b64decode(begin), b64decode(end)
    # The key that follows the longest one is a byte longer.
    if max(len(first), len(last)) > settings.kv_key_bytes_max + 1:
        raise TooLarge(f"a bound of a range may have at most {settings.kv_key_bytes_max + 1} bytes")
    if first >= last:
        raise RangeInvalid("the end of a range must be beyond its begin")
    return first, last


@router.get("/status", response_model=schemas.CommitStatus)
async def status(
    query: Annotated[schemas.StatusQuery, Query()], request: Request, caller: Caller, parts: Parts
) -> Response:
    """What became of a commit whose answer did not come. What is not found by now is not done any more."""
    key = usable_key(query.request_id)
    database = parts.context.database
    head = await parts.log_head.fresh()
    if query.min_version > head.version:
        raise VersionInFuture(
            f"version {query.min_version} was told to nobody; the log ends at {head.version}", version=head.version
        )
    place = await find_transaction(database, caller, key)
    if place is None:
        question = Question(caller.scope, key, caller.tenant_id, request_id=request.scope["state"]["request_id"])
        told = await ask_operation(parts.context, question)
        if told.state is OperationState.PENDING:
            raise OperationInProgress("a commit with this request_id is being carried out; ask again")
        known = told.known
        if known is not None and known.code == "committed" and known.subject_id is not None:
            # It was committed after the first look.
            await parts.log_head.fresh()
            place = await find_event(database, known.subject_id)
            if place is None:
                return json_response({"status": "log_truncated", "version": None, "leader_id": None})
    if place is not None:
        return json_response({"status": "committed", "version": place.version, "leader_id": place.leader_id})
    truncated = query.min_version + 1 < await find_first_version(database)
    return json_response(
        {"status": "log_truncated" if truncated else "id_not_found", "version": None, "leader_id": None}
    )
