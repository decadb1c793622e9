"""The edge for WebSockets: request ids, refusals before the upgrade, the count of requests (orchestrator/edge/edge.py)."""

from __future__ import annotations

import re
import uuid
from typing import Final

from starlette.datastructures import Headers

from orchestrator.http import metrics
from orchestrator.http.asgi import App, Message, Receive, Scope, Send
from orchestrator.http.problem_documents import problem_response
from orchestrator.problems import Malformed, NotFound, Overloaded, Problem

REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
SOCKETS: Final = re.compile(r"/api/v1/(notifications|allocations/[^/]+/console/attach)")
SWITCHING, FORBIDDEN, FAILED = 101, 403, 500


async def serve_socket(app: App, scope: Scope, receive: Receive, send: Send, *, zone: str, is_full: bool) -> None:
    """Serve one upgrade for as long as its socket lasts; what is refused before it is a problem document over HTTP."""
    asked_id = Headers(scope=scope).get("x-request-id") or uuid.uuid4().hex
    readable = REQUEST_ID.fullmatch(asked_id) is not None
    request_id = asked_id if readable else uuid.uuid4().hex
    status = FAILED

    async def send_on(message: Message) -> None:
        nonlocal status
        if message["type"] == "websocket.http.response.start":
            status = message["status"]
        elif message["type"] == "websocket.accept":
            status = SWITCHING
        elif message["type"] == "websocket.close" and status == FAILED:
            status = FORBIDDEN
        if message["type"] in ("websocket.http.response.start", "websocket.accept"):
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
        await send(message)

    scope.setdefault("state", {})["request_id"] = request_id
    refusal: Problem | None = None
    if not readable:
        refusal = Malformed("X-Request-Id must be 1 to 128 printable characters")
    elif SOCKETS.fullmatch(scope["path"]) is None:
        refusal = NotFound("no WebSocket is served at this path")
    elif is_full:
        refusal = Overloaded("too many requests at once; try again")
    try:
        if refusal is not None:
            await problem_response(refusal)(scope, receive, send_on)
        else:
            await app(scope, receive, send_on)
    finally:
        metrics.REQUESTS.labels(zone=zone, method="GET", status=str(status)).inc()
