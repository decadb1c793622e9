"""`POST /v1/commit` and `GET /v1/status`: transactions of keys and values (docs/reference/keyvalue.md)."""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from berth.process.json_objects import JsonObject
from orchestrator.http.answers import json_response
from orchestrator.http.asgi import Scope
from orchestrator.http.audited.actions import FENCE
from orchestrator.http.audited.callers import audited_caller
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response, operation_in, usable_key
from orchestrator.http.problem_documents import invalid_from
from orchestrator.http.services import Parts, Services
from orchestrator.http.writes import AnyWrite
from orchestrator.keyvalue import schemas
from orchestrator.keyvalue.queries import find_first_version, find_transaction
from orchestrator.keyvalue.rules import Precondition, RangeDelete, RangeInvalid, VersionMissing, Write, effect_of
from orchestrator.keyvalue.store.keys import LogPosition
from orchestrator.keyvalue.store.transactions import Commit
from orchestrator.log.namespaces import namespace_of
from orchestrator.log.refusals import VersionInFuture
from orchestrator.operations.commands import Question, ask_operation
from orchestrator.operations.queries import find_position
from orchestrator.operations.states import OperationState
from orchestrator.operations.store.operations import Answer
from orchestrator.operations.store.positions import OperationPosition
from orchestrator.problems import Malformed, OperationInProgress, TooLarge
from orchestrator.settings import Settings
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, OPERATOR_ADMINS, TENANT_WRITERS


class CommitRoute(APIRoute):
    """Answers 400 instead of 422 to a body that does not fit the schema, as the source API does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with that status."""
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
@requires(tenant=TENANT_WRITERS, operator=OPERATOR_ADMINS)
async def commit(body: schemas.CommitTransaction, write: AnyWrite) -> Response:
    """Commit a transaction if its preconditions are satisfied; otherwise return those that are not."""
    return answer_response(await commit_for(write.parts, write.request.scope, write.caller, body, write.key))


router.include_router(strict)


async def commit_for(
    parts: Services,
    scope: Scope,
    caller: Principal,
    body: schemas.CommitTransaction,
    key: str | None,
) -> Answer:
    """Commit a transaction and return its answer. Raises `Problem`."""
    settings = parts.settings
    request_id = body.request_id
    if request_id is not None and len(request_id) < settings.kv_request_id_length_min:
        raise Malformed(
            f"request_id has {len(request_id)} characters; it must have at least {settings.kv_request_id_length_min}"
        )
    if key is not None:
        usable_key(key)
    operation = operation_in(
        scope, caller, request_id or key or str(uuid.uuid4()), body.model_copy(update={"request_id": None}),
        settings.operation_retention_seconds,
    )  # fmt: skip
    requested = _commit_of(body, caller, settings, operation)
    return await parts.gate.answer(operation, lambda: parts.commits.answer(requested))


def _commit_of(body: schemas.CommitTransaction, caller: Principal, settings: Settings, operation: Any) -> Commit:
    """Translate a body. Raises `TooLarge`, `RangeInvalid`, `VersionMissing`."""
    for what, number, bound in (
        ("operations", len(body.operations), settings.kv_operations_max),
        ("preconditions", len(body.preconditions), settings.kv_preconditions_max),
    ):
        if number > bound:
            raise TooLarge(f"the transaction has {number} {what}; the bound is {bound}; split it")
    preconditions = tuple(_precondition_of(read, body.read_version, settings) for read in body.preconditions)
    versions = [read.version for read in preconditions]
    if body.read_version is not None:
        versions.append(body.read_version)
    payload: JsonObject = {"operations": [each.model_dump(mode="json") for each in body.operations]}
    if caller.tenant_id is None:
        payload["principal_id"] = str(caller.id)
    return Commit(
        operation=operation,
        namespace=namespace_of(caller),
        leader_id=body.leader_id,
        version_max=max(versions, default=None),
        preconditions=preconditions,
        effect=effect_of(_operation_of(each, settings) for each in body.operations),
        payload=payload,
        payload_bytes=_bounded_size(payload, settings),
        correlation_id=uuid.uuid4(),
        keys_max=settings.kv_namespace_keys_max,
        bytes_max=settings.kv_namespace_bytes_max,
        log_bytes_max=settings.kv_log_bytes_per_day_max,
    )


def _bounded_size(payload: JsonObject, settings: Settings) -> int:
    """Bytes of the payload as the log stores it. Raises `TooLarge`."""
    # PostgreSQL writes jsonb with a space after each comma and colon.
    text = orjson.dumps(payload)
    size = len(text) + text.count(b",") + text.count(b":")
    if size > settings.kv_transaction_bytes_max:
        raise TooLarge(
            f"the operations have {size} bytes; the bound is {settings.kv_transaction_bytes_max}; split the transaction"
        )
    return size


def _precondition_of(
    read: schemas.PointRead | schemas.RangeRead, read_version: int | None, settings: Settings
) -> Precondition:
    version = read_version if read.version is None else read.version
    if version is None:
        raise VersionMissing("a precondition has no version, and the transaction has no read_version; set either")
    shown = {**read.model_dump(mode="json"), "version": version}
    if isinstance(read, schemas.PointRead):
        return Precondition(version, _key(read.key, settings), None, shown)
    begin, end = _range(read.begin, read.end, settings)
    return Precondition(version, begin, end, shown)


def _operation_of(
    operation: schemas.WriteKey | schemas.DeleteKey | schemas.DeleteRange, settings: Settings
) -> Write | RangeDelete:
    if isinstance(operation, schemas.DeleteRange):
        return RangeDelete(*_range(operation.begin, operation.end, settings))
    if isinstance(operation, schemas.DeleteKey):
        return Write(_key(operation.key, settings), None)
    value = b64decode(operation.value)
    if len(value) > settings.kv_value_bytes_max:
        raise TooLarge(f"a value has {len(value)} bytes; the bound is {settings.kv_value_bytes_max}")
    return Write(_key(operation.key, settings), value)


def _key(text: str, settings: Settings) -> bytes:
    key = b64decode(text)
    if len(key) > settings.kv_key_bytes_max:
        raise TooLarge(f"a key has {len(key)} bytes; the bound is {settings.kv_key_bytes_max}")
    return key


def _range(begin: str, end: str, settings: Settings) -> tuple[bytes, bytes]:
    first, last = b64decode(begin), b64decode(end)
    # The successor of the longest key is one byte longer.
    if max(len(first), len(last)) > settings.kv_key_bytes_max + 1:
        raise TooLarge(f"a bound of a range may have at most {settings.kv_key_bytes_max + 1} bytes")
    if first >= last:
        raise RangeInvalid("the end of a range must be after its beginning")
    return first, last


@router.get("/status", response_model=schemas.CommitStatus)
@requires(tenant=TENANT_WRITERS, operator=EVERY_OPERATOR, writes=True)
async def status(
    query: Annotated[schemas.StatusQuery, Query()], request: Request, caller: Caller, parts: Parts
) -> Response:
    """Return the outcome of a commit whose response was lost. A request_id not found is fenced: it never commits later."""
    key = usable_key(query.request_id)
    database = parts.context.database
    head = await parts.log_head.fresh()
    if query.min_version > head.version:
        raise VersionInFuture(
            f"version {query.min_version} does not exist; the log ends at {head.version}", version=head.version
        )
    place: LogPosition | OperationPosition | None = await find_transaction(database, caller, key)
    if place is None:
        question = Question(
            caller.scope,
            key,
            caller.tenant_id,
            request_id=request.scope["state"]["request_id"],
            caller=audited_caller(request.scope, caller, FENCE),
        )
        found = await ask_operation(parts.context, question)
        if found.state is OperationState.PENDING:
            raise OperationInProgress("a commit with this request_id is in progress; retry shortly")
        known = found.known
        if known is not None and known.code == "committed":
            # Committed after the first read, or the log has dropped it.
            place = await find_position(database, caller.scope, key, parts.log_head.fresh)
            if place is None or place.version is None:
                return json_response({"status": "log_truncated", "version": None, "leader_id": None})
    if place is not None:
        return json_response({"status": "committed", "version": place.version, "leader_id": place.leader_id})
    truncated = query.min_version + 1 < await find_first_version(database)
    return json_response(
        {"status": "log_truncated" if truncated else "id_not_found", "version": None, "leader_id": None}
    )
