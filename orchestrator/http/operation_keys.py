"""The operation of a write: its key and the fingerprint of its content (DESIGN §6)."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import MutableMapping
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from orchestrator.http.services import ENDING_VERB
from orchestrator.operations.store.operations import Answer, Operation
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


def operation_of(
    request: Request, principal: Principal, key: str | None, content: Any, retention_seconds: float
) -> Operation:
    """The operation record's identity. `content` is the parsed body; None for an empty one.

    Without a key we draw one, so that every write has its record. Raises `Malformed` for an unusable key.
    """
    scope = {"method": request.method, "path": request.url.path, "state": request.scope["state"]}
    return operation_in(scope, principal, key, content, retention_seconds)


def operation_in(
    scope: MutableMapping[str, Any], principal: Principal, key: str | None, content: Any, retention_seconds: float
) -> Operation:
    """As `operation_of`, from the ASGI scope of a request."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
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
    )


def content_of(scope: MutableMapping[str, Any], body: BaseModel | None) -> Any:
    """What a write's fingerprint is made of: left out and null members have one meaning, and query parameters count."""
    document = None if body is None else body.model_dump(mode="json")
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
