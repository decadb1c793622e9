"""The operation of a write: its key and the fingerprint of its content (DESIGN §6)."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from orchestrator.http.asgi import Scope
from orchestrator.http.audited.callers import audited_caller
from orchestrator.http.services import ENDING_VERB, TAKE_TURN
from orchestrator.operations.store.operations import Answer, Operation, Repetition
from orchestrator.problems import Malformed
from orchestrator.tenants.principals import Principal

KEY = re.compile(r"[\x20-\x7e]{1,255}")
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Printable ASCII, 1 to 255 characters, quoted or bare.",
    ),
]


def operation_in(
    scope: Scope,
    principal: Principal,
    key: str | None,
    body: BaseModel | None,
    retention_seconds: float,
) -> Operation:
    """The identity of a write's operation record, from the ASGI scope and the parsed body of its request.

    Without a key the server draws one, so that every write has its record. Raises `Malformed` for an unusable key.
    """
    canonical = json.dumps(_content(scope, body), sort_keys=True, separators=(",", ":"))
    written = "\n".join((scope["method"], scope["path"], canonical))
    used = f"auto:{uuid.uuid4()}" if key is None else usable_key(key)
    scope["state"] |= {"operation_key": used, "principal_id": str(principal.id)}
    if principal.tenant_id is not None:
        scope["state"]["tenant_id"] = str(principal.tenant_id)
    return Operation(
        scope=principal.scope,
        key=used,
        fingerprint=hashlib.sha256(written.encode()).digest(),
        retention_seconds=retention_seconds,
        request_id=scope["state"]["request_id"],
        key_is_ours=key is None,
        ending=bool(scope["state"].get(ENDING_VERB)),
        caller=audited_caller(scope, principal),
        repetition=_repetition(scope, principal),
    )


def _repetition(scope: Scope, principal: Principal) -> Repetition | None:
    """What lets the request share a transaction, where its limits left the turn to the operation."""
    state = scope["state"]
    take_turn = state.get(TAKE_TURN)
    if take_turn is None:
        return None

    def note_leader(key: str) -> None:
        state.update(operation_key=key, coalesced=True)

    return Repetition(principal.id, take_turn, note_leader)


def _content(scope: Scope, body: BaseModel | None) -> Any:
    """The content that every fingerprint covers: the body without the members that have their default, and the query.

    So an absent member and an explicit default are the same content, and a new optional member leaves the fingerprint of
    every earlier request as it was: a retry across an upgrade finds its record.
    """
    document = None if body is None else body.model_dump(mode="json", exclude_defaults=True)
    query = dict(QueryParams(scope["query_string"])) if scope["query_string"] else {}
    return {"body": document, "query": query} if query else document


def usable_key(key: str) -> str:
    """The key without its quotes (RFC 8941 strings quote; most clients do not)."""
    bare = key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key
    if not KEY.fullmatch(bare):
        raise Malformed("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return bare


def answer_response(answer: Answer) -> Response:
    """The stored or fresh answer, byte for byte."""
    headers = {"idempotent-replayed": "true"} if answer.replayed else {}
    if answer.version is not None:
        headers["berth-version"] = str(answer.version)
    media_type = "application/json" if answer.status < 400 else "application/problem+json"
    if answer.status == 204:
        return Response(status_code=204, headers=headers)
    return Response(answer.body, answer.status, headers, media_type)
