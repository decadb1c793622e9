"""The outermost layer of every listener: request ids, body limits in bytes and seconds, overload, request log, metrics.

One pure ASGI layer, because each framework middleware costs more than all of this together. Requests beyond the bound are
refused, but never those that end something: release, cancel, confirm and force-release are not shed (P13).
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
import uuid
from collections.abc import Callable

import structlog
from starlette.datastructures import Headers

from orchestrator.database.response_versions import ResponseVersion
from orchestrator.edge.body_values import VALUES_MAX, BodyValues
from orchestrator.edge.head_requests import as_get
from orchestrator.edge.socket_edge import REQUEST_ID, serve_socket
from orchestrator.edge.sources import TrustedProxies
from orchestrator.http import metrics
from orchestrator.http.asgi import App, Message, Receive, Scope, Send, State
from orchestrator.http.principal_limits import LIMITED_PRINCIPAL, ON_RESPONSE
from orchestrator.http.problem_documents import problem_response
from orchestrator.http.services import ENDING_VERB, RESPONSE_VERSION, SOURCE
from orchestrator.http.waiting_requests import PLACE
from orchestrator.log.version_parameters import VERSION_HEADER, requested_version
from orchestrator.problems import Malformed, Overloaded, Problem, RequestTimeout, TooLarge

log = structlog.get_logger("orchestrator.api")
ENDING_VERBS = re.compile(r"/(release|cancel|confirm|force-release|force-cleanup|result)$")
ALWAYS_SERVED = frozenset({"/ok", "/live", "/metrics"})
LASTING = frozenset({"/v1/subscribe"})
"""Long-lived responses: they have separate bounds and metrics."""
LONG_POLLS = frozenset({"/node/v1/tasks/wait", "/site/v1/tasks/wait"})
"""Requests that wait most of their time: they are bounded by node, and not by the requests in flight."""
OPEN_PATHS = frozenset(
    {
        "/api/v1/nodes/enroll",
        "/api/v1/nodes/enroll/challenge",
        "/api/v1/sites/enroll",
        "/api/v1/deploy-systems/enroll",
        "/api/v1/deploy-systems/enroll/challenge",
        "/api/v1/invitations/accept",
    }
)
"""Writes whose credential is in the body, which is read before the caller is known."""
OPEN_BODY_BYTES_MAX = 32 * 1024
SLOW_SECONDS = 1.0
BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC_ZONE = "public"
LOGGED_OF_A_WRITE = ("operation_key", "allocation_id", "principal_id", "tenant_id", "coalesced", LIMITED_PRINCIPAL)
"""What endpoints leave in the request's state for its line in the log."""


class _Place:
    """A request's place among those in flight: 1, or 0 for a long poll, a long-lived response, and what ends something.

    What ends something is never refused, so its places would be taken from all others; it has bounds of its principal.
    """

    def __init__(self, edge: Edge, size: int, hold_body: Callable[[], int]) -> None:
        self._edge = edge
        self._size = size
        self._paused = False
        self._hold_body = hold_body
        self._waits_since = 0.0
        self.waited_seconds = 0.0
        edge.count(size)

    def begin_wait(self) -> int:
        """Leave the place, and read nothing more from the client: the request waits. Returns the bytes that it holds."""
        self.pause()
        self._waits_since = asyncio.get_running_loop().time()
        return self._hold_body()

    def end_wait(self) -> None:
        """Take it again."""
        self.resume()
        self.waited_seconds += asyncio.get_running_loop().time() - self._waits_since

    def require_room(self) -> None:
        """Raise `Overloaded` if more requests are in flight than may be, and this is one of them."""
        if self._size and self._edge.free < 0:
            raise _overloaded()

    def leaves_room(self, own: int) -> bool:
        """Whether a principal with so many requests in flight may have one more: it has no more than are left to others."""
        return own <= self._edge.free

    def pause(self) -> None:
        """Leave the place until `resume`."""
        if not self._paused:
            self._paused = True
            self._edge.count(-self._size)

    def resume(self) -> None:
        """Take it again, if it was not given up for good."""
        if self._paused:
            self._paused = False
            self._edge.count(self._size)

    def leave(self) -> None:
        """Give it up for good."""
        if not self._paused:
            self._edge.count(-self._size)
        self._size = 0


class Edge:
    """Wraps an ASGI application of one trust zone."""

    def __init__(
        self,
        app: App,
        *,
        zone: str,
        body_bytes_max: int,
        in_flight_max: int,
        body_seconds_max: float = 10.0,
        body_values_max: int = VALUES_MAX,
        proxies: TrustedProxies | None = None,
        hsts_seconds: int = 0,
    ) -> None:
        self._app = app
        self._zone = zone
        self._body_bytes_max = body_bytes_max
        self.body_seconds_max = body_seconds_max
        self.body_values_max = body_values_max
        self._proxies = proxies or TrustedProxies((), "")
        self._hsts = (b"strict-transport-security", b"max-age=%d" % hsts_seconds) if hsts_seconds else None
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._gauge = metrics.IN_FLIGHT.labels(zone=zone)
        self._seconds = metrics.REQUEST_SECONDS.labels(zone=zone)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == "websocket":
            scope.setdefault("state", {})[SOURCE] = self._proxies.source_of(scope)
            await serve_socket(self._app, scope, receive, send, zone=self._zone, is_full=self.free <= 0)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, receive, send = as_get(scope, receive, send)
        started = time.perf_counter()
        measured = scope["path"] not in LASTING
        request_id, asked, refusal = self._judge(scope, Headers(scope=scope))
        state = {"end_if_unread": _nothing, "hold_body": _no_bytes, **scope.get("state", {})}
        state[ON_RESPONSE] = []
        state |= {"request_id": request_id, RESPONSE_VERSION: asked, ENDING_VERB: _ending(scope)}
        state[SOURCE] = self._proxies.source_of(scope)
        scope["state"] = state
        is_brief = measured and scope["path"] not in LONG_POLLS
        place = _Place(self, int(is_brief and not state[ENDING_VERB]), state["hold_body"])
        state[PLACE] = place
        exchange = _Exchange(self, scope, receive, send, place)
        try:
            if refusal is not None:
                await problem_response(refusal)(scope, receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Problem as problem:
            if exchange.began:
                raise
            await problem_response(problem, state)(scope, receive, exchange.send)
        finally:
            place.leave()
            _leave(state)
            elapsed = time.perf_counter() - started if measured else 0.0
            if measured:
                self._seconds.observe(elapsed)
            metrics.REQUESTS.labels(zone=self._zone, method=_method(scope), status=str(exchange.status)).inc()
            self._write_log(scope, exchange.status, elapsed)

    def _judge(self, scope: Scope, headers: Headers) -> tuple[str, ResponseVersion | None, Problem | None]:
        """The request's id, the version that its response is to have, and why it is refused, if it is."""
        request_id = headers.get("x-request-id") or uuid.uuid4().hex
        if not REQUEST_ID.fullmatch(request_id):
            return uuid.uuid4().hex, None, Malformed("X-Request-Id must be 1 to 128 printable characters")
        try:
            self._require_acceptable(scope, headers)
            return request_id, requested_version(scope, headers) if self._zone == PUBLIC_ZONE else None, None
        except Problem as problem:
            return request_id, None, problem

    def headers_of(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """What is added to the headers of the response."""
        asked: ResponseVersion | None = scope["state"][RESPONSE_VERSION]
        headers = [(b"x-request-id", scope["state"]["request_id"].encode())]
        if asked is not None and asked.version is not None:
            headers.append((VERSION_HEADER, str(asked.version).encode()))
        if self._hsts is not None and scope["scheme"] == "https":
            headers.append(self._hsts)
        return headers

    @property
    def free(self) -> int:
        """How many more requests may be in flight; negative if more are than may be."""
        return self._in_flight_max - self._in_flight

    def count(self, change: int) -> None:
        """Count so many requests in flight more."""
        self._in_flight += change
        self._gauge.inc(change)

    def _write_log(self, scope: Scope, status: int, seconds: float) -> None:
        """A line for every write of a tenant's or an operator's, and for whatever failed or was slow."""
        troubled = status >= 500 or (seconds > SLOW_SECONDS and not scope["path"].endswith("/wait"))
        if not troubled and (scope["method"] in SAFE_METHODS or self._zone != PUBLIC_ZONE):
            return
        state = scope["state"]
        logged = {name: state[name] for name in LOGGED_OF_A_WRITE if name in state}
        (log.warning if troubled else log.info)(
            "request", zone=self._zone, method=scope["method"], path=scope["path"], status=status,
            seconds=round(seconds, 4), request_id=state["request_id"], source=state[SOURCE], **logged,
        )  # fmt: skip

    def _require_acceptable(self, scope: Scope, headers: Headers) -> None:
        length = headers.get("content-length")
        if length is not None and (not length.isdigit() or int(length) > self._bytes_max(scope)):
            raise TooLarge(f"the body may have at most {self._bytes_max(scope)} bytes")
        if len(headers.getlist("idempotency-key")) > 1:
            raise Malformed("the request has more than one Idempotency-Key; send one")
        if self.free <= 0 and not _ending(scope):
            raise _overloaded()

    def _bytes_max(self, scope: Scope) -> int:
        """Bytes that a body may have: few, where it is read before its sender is known."""
        return min(self._body_bytes_max, OPEN_BODY_BYTES_MAX) if scope["path"] in OPEN_PATHS else self._body_bytes_max

    def require_room_for(self, scope: Scope, received: int) -> None:
        """Raise `TooLarge` for a body of so many bytes."""
        if received > self._bytes_max(scope):
            raise TooLarge(f"the body may have at most {self._bytes_max(scope)} bytes")

    def require_not_overloaded(self, scope: Scope) -> None:
        """Raise `Overloaded` if more requests are in flight than may be, unless this one ends something."""
        if self.free < 0 and not _ending(scope):
            raise _overloaded()


class _Exchange:
    """A request and its response as they pass the edge: `receive` and `send` of the application.

    An object, because closures hold a dozen more of them for as long as a poll waits. `status` is that of the response, or 500.
    """

    __slots__ = (
        "_complete", "_deadline", "_edge", "_head", "_place", "_receive", "_received", "_scope", "_send", "_values", "began",
        "status",
    )  # fmt: skip

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send, place: _Place) -> None:
        self._edge = edge
        self._scope = scope
        self._receive = receive
        self._send = send
        self._place = place
        # A client that sends half a body would otherwise occupy a place among the requests in flight without end.
        self._deadline = asyncio.get_running_loop().time() + edge.body_seconds_max
        self._received = 0
        self._head = b""
        self._values: BodyValues | None = None
        self._complete = False
        self.began = False
        self.status = 500

    async def receive(self) -> Message:
        """The next message, within the bounds of a body. Raises `RequestTimeout`, `Malformed`, `TooLarge`, `Overloaded`."""
        if self._complete:
            return await self._receive()
        self._place.pause()  # waiting for a client is no work
        try:
            async with asyncio.timeout_at(self._deadline + self._place.waited_seconds):
                message = await self._receive()
        except TimeoutError as error:
            seconds = self._edge.body_seconds_max
            raise RequestTimeout(f"the body did not arrive whole within {seconds:g} s; send it again") from error
        finally:
            self._place.resume()
        if message["type"] == "http.request":
            self._complete = not message.get("more_body", False)
            message["body"] = bytes(message.get("body", b""))  # a connection may have collected it in a bytearray
            self._take(message["body"])
            self._edge.require_not_overloaded(self._scope)
        return message

    def _take(self, body: bytes) -> None:
        """Examine a piece of the body."""
        self._received += len(body)
        self._head += body[: max(0, len(codecs.BOM_UTF8) - len(self._head))]
        # No JSON text in UTF-8 holds a zero byte; every one in UTF-16 or UTF-32 does (RFC 8259 §8.1).
        if b"\0" in body or self._head.startswith(BYTE_ORDER_MARKS):
            raise Malformed("the body must be JSON in UTF-8, without a byte order mark")
        self._edge.require_room_for(self._scope, self._received)
        if self._values is None:
            self._values = BodyValues(self._edge.body_values_max)
        self._values.add(body, last=self._complete)

    async def send(self, message: Message) -> None:
        """Pass a message of the response on; its beginning ends what the request occupies."""
        if message["type"] == "http.response.start":
            self.began, self.status = True, message["status"]
            state = self._scope["state"]
            state["end_if_unread"]()
            # The request is done; its client may take long to read the response.
            self._place.leave()
            _leave(state)
            message["headers"] = [*message.get("headers", ()), *self._edge.headers_of(self._scope)]
        await self._send(message)


def _ending(scope: Scope) -> str:
    """The verb, if the request ends something and so is never shed; else the empty string.

    Names of things may be verbs as well (an operation's key is whatever its client likes).
    """
    path: str = scope["path"]
    if path in ALWAYS_SERVED:
        return path
    found = ENDING_VERBS.search(path) if scope["method"] == "POST" else None
    return found[1] if found else ""


def _overloaded() -> Overloaded:
    return Overloaded("this process serves as many requests as it may; retry later or use another replica")


def _leave(state: State) -> None:
    """The request counts no longer against the limits of its principal."""
    while state[ON_RESPONSE]:
        state[ON_RESPONSE].pop()()


def _nothing() -> None:
    pass


def _no_bytes() -> int:
    return 0


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in ("GET", "POST", "PUT", "PATCH", "DELETE") else "other"
