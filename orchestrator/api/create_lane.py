"""A short way for the one request that comes by the thousand: a create that is in order (docs/performance.md).

The framework's routing, dependencies and parsing cost more than the create itself costs in this process. This layer
serves creates that are in order. Everything else it passes on untouched, so it is the endpoint of `tenant/allocations.py`
that says what is wrong with a request. Both place through `place_create`, so they cannot differ in what they do.
"""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from orchestrator.api.authentication import principal_behind, tenants_own
from orchestrator.api.edge import App, Message, Receive, Scope, Send
from orchestrator.api.operation_keys import KEY_HEADER_LENGTH_MAX, answer_response
from orchestrator.api.problems import problem_response
from orchestrator.api.schemas.allocations import CreateAllocation
from orchestrator.api.services import Services
from orchestrator.api.tenant.allocations import place_create
from orchestrator.domain.errors import Problem

log = structlog.get_logger("orchestrator.api")
PATH = "/api/v1/allocations"
READ_HEADERS = frozenset({b"authorization", b"content-type", b"idempotency-key"})


class CreateLane:
    """Wraps the public application, inside the edge: problems are raised, as endpoints do."""

    def __init__(self, app: App, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a create that is in order; pass on everything else."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST" or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            if name in READ_HEADERS:
                headers.setdefault(name, value.decode("latin-1"))  # the first of several counts, as everywhere
        received = await _receive_all(receive)
        body = _body_in_order(headers, received)
        if body is None:
            await self._app(scope, _again(received, receive), send)
            return
        try:
            caller = tenants_own(await principal_behind(self._services.credentials, headers.get(b"authorization", "")))
            answer = await place_create(self._services, scope, caller, body, headers.get(b"idempotency-key"))
        except Problem:
            raise
        except Exception as error:
            log.error("unforeseen", path=PATH, method="POST", exc_info=error)
            await problem_response(Problem("something failed that should not have; it has been logged"))(
                scope, receive, send
            )
            return
        await answer_response(answer)(scope, receive, send)


async def _receive_all(receive: Receive) -> list[Message]:
    """The messages that carry the body, or end it early."""
    received = [await receive()]
    while received[-1]["type"] == "http.request" and received[-1].get("more_body", False):
        received.append(await receive())
    return received


def _body_in_order(headers: dict[bytes, str], received: list[Message]) -> CreateAllocation | None:
    """The body, if the endpoint would accept it and the headers beside it."""
    if received[-1]["type"] != "http.request" or headers.get(b"content-type") != "application/json":
        return None
    if len(headers.get(b"idempotency-key", "")) > KEY_HEADER_LENGTH_MAX:
        return None
    try:
        return CreateAllocation.model_validate_json(b"".join(message.get("body", b"") for message in received))
    except ValidationError:
        return None


def _again(received: list[Message], receive: Receive) -> Receive:
    """A `receive` that tells the same once more, and then what comes after it."""
    left = iter(received)

    async def tell() -> Message:
        for message in left:
            return message
        return await receive()

    return tell
