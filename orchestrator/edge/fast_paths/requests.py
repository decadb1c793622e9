"""What the short routes share: whole bodies, and responses to unforeseen errors."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from orchestrator.http.asgi import Message, Receive, Scope
from orchestrator.http.problem_documents import problem_response
from orchestrator.problems import Problem, Unforeseen

log = structlog.get_logger("orchestrator.api")
CONTENT_TYPE = "application/json"
T = TypeVar("T")


async def receive_all(receive: Receive) -> list[Message]:
    """The messages that carry the body, or end it early."""
    received = [await receive()]
    while received[-1]["type"] == "http.request" and received[-1].get("more_body", False):
        received.append(await receive())
    return received


def body_in_order(form: TypeAdapter[Any], content_type: str | None, received: list[Message]) -> Any:
    """The body, if an endpoint that takes this form would accept it and knows each of its members; else None."""
    if received[-1]["type"] != "http.request" or content_type != CONTENT_TYPE:
        return None
    try:
        return form.validate_json(b"".join(message.get("body", b"") for message in received), extra="forbid")
    except ValidationError:
        return None


def again(received: list[Message], receive: Receive) -> Receive:
    """A `receive` that returns the received messages once more, and then those that follow."""
    left = iter(received)

    async def tell() -> Message:
        for message in left:
            return message
        return await receive()

    return tell


async def foreseen(work: Awaitable[T], scope: Scope) -> T | Response:
    """The result of the work; the response 500 where it fails with an error that is no problem of the API's, which is logged."""
    try:
        return await work
    except Problem:
        raise
    except Exception as error:
        log.error("unforeseen", path=scope["path"], method=scope["method"], exc_info=error)
        return problem_response(Unforeseen(), scope["state"])
