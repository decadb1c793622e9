"""Turns errors into problem documents (RFC 9457). No foreseeable error becomes a 500."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from berth.process.json_objects import JsonObject
from orchestrator.http.asgi import State
from orchestrator.http.fields import VARIANT
from orchestrator.http.metrics import PROBLEMS
from orchestrator.http.oidc.token_refusals import TokenRefused
from orchestrator.problems import Invalid, Malformed, NotFound, Outcome, Problem, Unforeseen

log = structlog.get_logger("orchestrator.api")
MEDIA_TYPE = "application/problem+json"
ERRORS_MAX = 20
REFUSAL: Final = "refusal"
"""Member of a request's state: the problem that its response states."""
LEAVE_OUT = "does not go together with the other members; leave it out"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class MethodNotAllowed(Problem):
    """The path exists, but not with this method."""

    status, code, title = 405, "method_not_allowed", "Method not allowed"


def problem_response(problem: Problem, state: State | None = None, headers: dict[str, str] | None = None) -> Response:
    """The document with the server's time, and Retry-After where waiting helps.

    Where the outcome is open it names the operation's key, taken from the request's `state`: with it the client asks
    again and learns the outcome (P12), also if the key was drawn here.
    """
    PROBLEMS.labels(code=problem.code).inc()
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    sent = {**(headers or {}), **problem.headers()}
    if problem.status == 401:
        sent["www-authenticate"] = problem.challenge if isinstance(problem, TokenRefused) else "Bearer"
    document = {**problem.document(), "server_time": now}
    if problem.outcome is not Outcome.NOT_DONE and state is not None and "operation_key" in state:
        document["operation_key"] = state["operation_key"]
    return Response(orjson.dumps(document, default=str), problem.status, sent, MEDIA_TYPE)


def _refuse(request: Request, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    state = request.scope["state"]
    state[REFUSAL] = problem
    return problem_response(problem, state, headers)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _refuse(request, error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _refuse(request, invalid_from(error.errors()))


def invalid_from(errors: Sequence[Any]) -> Problem:
    """Pydantic's findings as one problem. What cannot be read at all is malformed rather than invalid."""
    if any(found["type"] == "json_invalid" for found in errors):
        return Malformed("the body is not JSON")
    listed = [{"field": _field_of(e["loc"]), "message": _message_of(e)} for e in errors[:ERRORS_MAX]]
    where = listed[0]["field"] or "the body"
    return Invalid(f"{where}: {listed[0]['message']}", errors=listed)


def _message_of(found: Any) -> str:
    """Pydantic's words, except for a member that must be absent: its message must not suggest null."""
    return LEAVE_OUT if found["type"] == "none_required" else str(found["msg"]).removeprefix("Value error, ")


def _field_of(place: Sequence[Any]) -> str:
    return ".".join(str(part) for part in place[1:] if not str(part).startswith(VARIANT))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Problem):
        # FastAPI wraps whatever ends the reading of a body; ours (TooLarge) says more than its 400.
        return _refuse(request, error.__cause__)
    if error.status_code == 404:
        return _refuse(request, NotFound("there is nothing at this path"))
    if error.status_code == 405:
        methods = {"allow": _methods_of(request)}
        return _refuse(request, MethodNotAllowed("this path has no such method"), methods)
    return _refuse(request, Malformed(str(error.detail)))


def _methods_of(request: Request) -> str:
    """What this path allows (RFC 9110 §10.2.1): the router itself names the methods of one of its endpoints only."""
    routes: list[BaseRoute] = request.app.router.routes
    asked: JsonObject = {"type": "http", "path": request.url.path, "root_path": "", "headers": []}

    def allowed(method: str) -> bool:
        return any(route.matches({**asked, "method": method})[0] is Match.FULL for route in routes)

    found = list(filter(allowed, METHODS))
    if "GET" in found:
        found.insert(1, "HEAD")  # served as a GET without its body (orchestrator/edge/head_requests.py)
    return ", ".join(found)


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("unforeseen", path=request.url.path, method=request.method, exc_info=error)
    unforeseen = Unforeseen()
    if request.method in SAFE_METHODS:
        return problem_response(Problem(unforeseen.detail))
    return problem_response(unforeseen, request.scope["state"])


def install(app: FastAPI) -> None:
    """Let every failure of this application end as a problem document."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)
