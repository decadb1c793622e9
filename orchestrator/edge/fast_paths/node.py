"""A short route for nodes' polls and heartbeats that are in order: nearly all requests of a fleet (DESIGN §9).

The framework's routing, dependencies and parsing cost more than such a request costs in this process
(docs/reference/performance.md), and its memory is kept as long as a poll waits. Everything else it passes on untouched, so it is
the endpoint that says what is wrong with a request. Both do it through the same function, so they cannot differ in what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response

from node_agent.protocol import Heartbeat
from orchestrator.edge.fast_paths.requests import CONTENT_TYPE, again, body_in_order, foreseen, receive_all
from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.http.services import Services
from orchestrator.nodes.certificates import NodeIdentity, node_identity
from orchestrator.nodes.deploy_systems.identity import PEER
from orchestrator.tasks.endpoints import NO_STORE, WAIT_SECONDS, KnownTasks, WaitSeconds, hear, next_tasks

POLL, HEARTBEAT = ("GET", "/node/v1/tasks/wait"), ("POST", "/node/v1/heartbeat")
_KNOWN: TypeAdapter[list[Any]] = TypeAdapter(KnownTasks)
_SECONDS: TypeAdapter[float] = TypeAdapter(WaitSeconds)
_HEARTBEAT: TypeAdapter[Heartbeat] = TypeAdapter(Heartbeat)


class NodeFastPath:
    """Wraps the node application, inside its limits: problems are raised, as endpoints do.

    `services`: acting for the platform, as every report of a node is recorded.
    """

    def __init__(self, app: App, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a poll or a heartbeat that is in order; pass on everything else."""
        request = (scope["method"], scope["path"]) if scope["type"] == "http" else None
        if request == POLL:
            await self._poll(scope, receive, send)
        elif request == HEARTBEAT and not scope["query_string"]:
            await self._heartbeat(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _poll(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = _poll_parameters(scope["query_string"])
        if parameters is None:
            await self._app(scope, receive, send)
            return
        answer = await foreseen(next_tasks(self._services, self._node(scope), *parameters), scope)
        await _send_json(answer, NO_STORE, scope, receive, send)

    async def _heartbeat(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = await receive_all(receive)
        body: Heartbeat | None = body_in_order(_HEARTBEAT, _content_type(scope), received)
        if body is None:
            await self._app(scope, again(received, receive), send)
            return
        answer = await foreseen(hear(self._services, self._node(scope), body), scope)
        await _send_json(answer, {}, scope, receive, send)

    def _node(self, scope: Scope) -> NodeIdentity:
        return node_identity(scope["state"].get(PEER), self._services.settings.trust_domain)


async def _send_json(
    answer: BaseModel | Response, headers: Mapping[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    if isinstance(answer, BaseModel):
        answer = Response(answer.model_dump_json(), 200, headers, CONTENT_TYPE)
    await answer(scope, receive, send)


def _poll_parameters(query: bytes) -> tuple[list[Any], float] | None:
    """The tasks that the node knows and the seconds that it waits, if the endpoint would accept them; else None."""
    known: list[str] = []
    seconds: list[str] = []
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name == "known":
            known.append(value)
        elif name == "timeout_seconds" and not seconds:
            seconds.append(value)
        else:
            return None
    try:
        return _KNOWN.validate_python(known), _SECONDS.validate_python(seconds[0]) if seconds else WAIT_SECONDS
    except ValidationError:
        return None


def _content_type(scope: Scope) -> str | None:
    """The first of several counts, as everywhere."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            return str(value.decode("latin-1"))
    return None
