"""The protocol of one call without I/O: requests, pauses and results as steps that either client carries out.

A write has one key for all its attempts. It is retried until a response settles it or `retry_seconds` are over; then the
key's status is queried, and only if that does not settle it either is the outcome unknown (DESIGN P12).
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx

from berth.client.calls.call import Call
from berth.client.calls.operations import get_operation, moment
from berth.client.errors import BerthError, UnreadableAnswer
from berth.client.requests.clocks import steady_seconds
from berth.client.requests.exchange import Exchange, RequestArguments, read_answer, request_arguments
from berth.client.requests.operation_keys import parse_key
from berth.client.requests.outcomes import result_of, undecided
from berth.client.requests.retries import NEVER_SENT, Retries

Result = TypeVar("Result")

ASKING_SECONDS_MAX = 5.0
TIME_SECONDS_MAX = 2.0
KEY_NOTE = "idempotency key: "
"""How a note begins that names the key of a write which was interrupted."""


@dataclass(frozen=True)
class Send:
    """Send this request."""

    arguments: RequestArguments


@dataclass(frozen=True)
class Pause:
    """Wait so long."""

    seconds: float


@dataclass(frozen=True)
class Join:
    """Wait until another call of this client has closed the question, at most so long."""

    question: Future[bool]
    seconds_max: float


@dataclass(frozen=True)
class Done(Generic[Result]):
    """There is nothing more to do."""

    result: Result


Talk = Generator[Send | Pause | Join, httpx.Response | None, Result]
Heard = httpx.Response | httpx.RequestError | BerthError | None


def step_after(talk: Talk[Result], heard: Heard) -> Send | Pause | Join | Done[Result]:
    """The next step, given the result of the last one; None before the first and after a pause."""
    try:
        return talk.throw(heard) if isinstance(heard, Exception) else talk.send(heard)
    except StopIteration as end:
        return Done(end.value)


def converse(exchange: Exchange, call: Call[Result]) -> Talk[Result]:
    """Carry out one call. Returns its validated result, or raises a `BerthError`."""
    if not call.writes:
        return (yield from _read(exchange, call, exchange.retry_seconds))
    request_arguments(call, call.idempotency_key)  # Refuse an unsendable call before any request.
    if call.idempotency_key is None:
        key, age_seconds = (yield from draw_key(exchange)), 0.0
    else:
        key = call.idempotency_key
        age_seconds = yield from _age_seconds(exchange, key)
    try:
        return (yield from _write(exchange, call, key, steady_seconds() - age_seconds))
    except BerthError as error:
        error.extra.setdefault("idempotency_key", key)
        raise
    except BaseException as interruption:
        interruption.add_note(f"{KEY_NOTE}{key}")
        raise


def draw_key(exchange: Exchange) -> Talk[str]:
    """A new key, under the server's time. Raises `Unavailable` where the server has never been reached."""
    yield from _learn_time(exchange)
    return exchange.draw_key()


def _age_seconds(exchange: Exchange, key: str) -> Talk[float]:
    """The age of a key that contains its time; any other key counts as new."""
    parsed = parse_key(key)
    if parsed is None:
        return 0.0
    yield from _learn_time(exchange)
    return max(0.0, exchange.clock.now_seconds() - parsed.created_at_seconds)


def _learn_time(exchange: Exchange) -> Talk[None]:
    """Learn the server's time, once per client; a server that does not send it leaves this machine's clock in use.

    Calls that start together wait for one request. Raises `Unavailable` if the server cannot be reached.
    """
    if exchange.clock.known or exchange.time_asked:
        return
    question, is_own = exchange.join_time_question()
    if not is_own:
        yield Join(question, exchange.retry_seconds + TIME_SECONDS_MAX)
        if not (question.done() and question.result()):
            yield from _ask_time(exchange)
        return
    settled = False
    try:
        yield from _ask_time(exchange)
        settled = True
    finally:
        exchange.close_time_question(settled=settled)


def _ask_time(exchange: Exchange) -> Talk[None]:
    """Ask the server for its time. Returns without it if the server is busy; raises `Unavailable` if it is unreachable."""
    retries = Retries(False, exchange.address, exchange.retry_seconds)
    began = steady_seconds()
    while True:
        try:
            response = yield Send({"method": "GET", "url": "/ok", "timeout": TIME_SECONDS_MAX})
        except httpx.TimeoutException as cause:
            if not isinstance(cause, NEVER_SENT):
                return  # A busy server: the write that waits may be what relieves it.
            error = retries.error_of(cause)
        except httpx.RequestError as cause:
            error = retries.error_of(cause)
        else:
            # Every response carries the time, whatever its status.
            exchange.time_asked = True
            return _take_time(exchange, response)
        yield from _pause(retries, error, began)


def _take_time(exchange: Exchange, response: httpx.Response | None) -> None:
    if response is not None:
        exchange.clock.learn(response.headers.get("date"))


def _pause(retries: Retries, error: BerthError, began: float) -> Talk[None]:
    """Wait for the next attempt; raises `error` where there is none."""
    pause = retries.pause_seconds(error, steady_seconds() - began)
    if pause is None:
        raise error
    yield Pause(pause)


def _attempt(exchange: Exchange, call: Call[Result], key: str | None, retries: Retries) -> Talk[Result]:
    arguments = request_arguments(call, key)
    try:
        response = yield Send(arguments)
    except httpx.RequestError as cause:
        raise retries.error_of(cause) from cause
    assert response is not None
    _take_time(exchange, response)
    return read_answer(call, response)


def _read(exchange: Exchange, call: Call[Result], seconds_max: float) -> Talk[Result]:
    retries = Retries(False, exchange.address, seconds_max)
    began = steady_seconds()
    while True:
        try:
            return (yield from _attempt(exchange, call, None, retries))
        except BerthError as error:
            failed = error
        yield from _pause(retries, failed, began)


def _write(exchange: Exchange, call: Call[Result], key: str, made: float) -> Talk[Result]:
    """Attempt a write whose key was made at `made` by the steady clock; then query its outcome."""
    retries = Retries(True, exchange.address, exchange.retry_seconds)
    began = steady_seconds()
    failed: BerthError | None = None
    # The machine may have slept since the last attempt.
    while steady_seconds() - made < exchange.sendable_seconds:
        try:
            return (yield from _attempt(exchange, call, key, retries))
        except BerthError as error:
            failed = error
        pause = retries.pause_seconds(failed, steady_seconds() - began)
        if pause is None:
            break
        yield Pause(pause)
    if isinstance(failed, UnreadableAnswer) or (failed is not None and not retries.open):
        raise failed
    return (yield from _settle(exchange, call, key, made, failed))


def _settle(exchange: Exchange, call: Call[Result], key: str, made: float, failed: BerthError | None) -> Talk[Result]:
    """Settle a write by querying its key's status. Raises `OutcomeUnknown` if that does not settle it."""
    last = failed or BerthError(
        "the key is older than answers are kept, so it was not sent again", code="operation_retired"
    )
    age_seconds = steady_seconds() - made
    since = None
    if exchange.clock.known or age_seconds >= exchange.sendable_seconds:
        since = moment(exchange.clock.now_seconds() - age_seconds)
    asked = get_operation(key, since=since)
    try:
        operation = yield from _read(exchange, asked, min(exchange.retry_seconds, ASKING_SECONDS_MAX))
    except BerthError as error:
        raise undecided(f"{last.detail}; asking what became of it failed as well: {error.detail}", last) from error
    return result_of(call, operation, last)
