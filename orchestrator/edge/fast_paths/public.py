"""Authenticates writes before a byte of their body is read; a short route for creates, holds and confirms that are in order.

The framework reads and parses a body before it checks the credential: without this, an unknown caller's request would cost as
much as a tenant's.

The framework's routing, dependencies and parsing cost more than such a request costs in this process
(docs/reference/performance.md). This layer serves those that are in order. Everything else it passes on untouched, so it is the
endpoint that says what is wrong with a request. Both do it through the same function, so they cannot differ in what they do.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from starlette.responses import Response

from orchestrator.allocations.endpoints import place_create
from orchestrator.allocations.schemas import CreateAllocation
from orchestrator.edge.edge import OPEN_PATHS
from orchestrator.edge.fast_paths.requests import again, body_in_order, foreseen, receive_all
from orchestrator.edge.write_endpoints import WriteEndpoints
from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.http.authentication import principal_behind
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.rate_limits import RequestClass
from orchestrator.http.services import CALLER, ENDING_VERB, Services, services_for, source_of
from orchestrator.keyvalue.commit_endpoints import commit_for
from orchestrator.keyvalue.schemas import CommitTransaction
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from orchestrator.reservations.endpoints import confirm_held, hold_for
from orchestrator.reservations.schemas import ByHolder, HoldResources
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import check_roles

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
READ_HEADERS = frozenset({b"authorization", b"content-type", b"idempotency-key"})
CONFIRM_PATH = re.compile(r"/api/v1/reservations/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/confirm")

Serve = Callable[[Services, Scope, Principal, Any, str | None], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """The form of a valid request, and the handler that answers it."""

    body: TypeAdapter[Any]
    serve: Serve


async def _confirm(parts: Services, scope: Scope, caller: Principal, body: ByHolder, key: str | None) -> Answer:
    assert caller.tenant_id is not None
    reservation_id = UUID(scope["path"].split("/")[-2])
    return await confirm_held(parts, scope, caller, caller.tenant_id, reservation_id, body, key)


ROUTES = {
    "/api/v1/allocations": Route(TypeAdapter(CreateAllocation), place_create),
    "/api/v1/reservations": Route(TypeAdapter(HoldResources), hold_for),
    "/v1/commit": Route(TypeAdapter(CommitTransaction), commit_for),
}
CONFIRM = Route(TypeAdapter(ByHolder), _confirm)


class FastPath:
    """Wraps the public application, inside the edge: problems are raised, as endpoints do.

    A caller without a live credential is refused here, whatever the path; it has read nothing and validated nothing. So is one
    whose role does not allow the write.
    """

    def __init__(self, app: App, services: Services, endpoints: WriteEndpoints) -> None:
        self._app = app
        self._endpoints = endpoints
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a stranger's write; serve a request that is in order, of a tenant's; pass on everything else."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            if name in READ_HEADERS:
                headers.setdefault(name, value.decode("latin-1"))  # the first of several counts, as everywhere
        services = services_for(self._services, scope)
        caller = await foreseen(self._caller(services, scope, headers.get(b"authorization", "")), scope)
        if isinstance(caller, Response):
            await caller(scope, receive, send)
            return
        route = _route(scope)
        if route is None or caller.tenant_id is None:
            await self._app(scope, receive, send)
            return
        received = await receive_all(receive)
        body = body_in_order(route.body, headers.get(b"content-type"), received)
        if body is None:
            await self._app(scope, again(received, receive), send)
            return
        answer = await foreseen(route.serve(services, scope, caller, body, headers.get(b"idempotency-key")), scope)
        response = answer if isinstance(answer, Response) else answer_response(answer)
        await response(scope, receive, send)

    async def _caller(self, services: Services, scope: Scope, credential: str) -> Principal:
        """The caller, whose role allows the write."""
        caller = await principal_behind(services.credentials, services.context.database, credential, source_of(scope))
        scope["state"][CALLER] = caller
        endpoint = self._endpoints.endpoint_of(scope["method"], scope["path"])
        if endpoint is None:
            scope["state"][ENDING_VERB] = ""  # there is nothing at this path, so it ends nothing
        else:
            try:
                check_roles(endpoint, caller)
            except Problem:
                # Whatever it would have ended: what a role does not allow has the rate of any write, and takes no turn.
                services.limits.take_rate(caller.scope, RequestClass.WRITE)
                raise
        await services.limits.admit(scope, caller.scope)
        return caller


def _route(scope: Scope) -> Route | None:
    """The route that a request may go, by its method and path."""
    if scope["method"] != "POST" or scope["query_string"]:
        return None
    path = scope["path"]
    return ROUTES.get(path) or (CONFIRM if CONFIRM_PATH.fullmatch(path) else None)
