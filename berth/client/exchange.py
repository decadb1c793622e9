"""What the synchronous and the asynchronous client have in common: settings, keys, headers, reading of answers."""

from __future__ import annotations

import itertools
import json
import random
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import httpx
from pydantic import ValidationError

from berth.client.calls import Call
from berth.client.errors import (
    BerthError,
    Invalid,
    StateUnreachable,
    WaitTimeout,
    error_from_problem,
)
from berth.client.keys import AskedKey, AsyncKeySource, require_sendable
from berth.client.models import FINAL_STATES, Allocation

Result = TypeVar("Result")

REQUEST_SECONDS = 30.0
RETRY_SECONDS = 15.0
POLL_SECONDS_FIRST = 0.05
POLL_SECONDS_MAX = 1.0


@dataclass
class Exchange:
    """Where to send requests and as whom. `retry_seconds` bounds the retrying of one request."""

    address: str
    key: AsyncKeySource | None
    retry_seconds: float = RETRY_SECONDS
    request_seconds: float = REQUEST_SECONDS
    client_id: str = field(default_factory=lambda: secrets.token_hex(6))

    def __post_init__(self) -> None:
        """Begin this client's sequence of writes. Raises `Unauthenticated` for a key that no header can carry."""
        if isinstance(self.key, str) and self.key:
            require_sendable(self.key)
        self.address = self.address.rstrip("/")
        self._sequence = itertools.count(1)

    def settings(self) -> dict[str, Any]:
        """Arguments for an httpx client."""
        headers = {"Accept": "application/json", "User-Agent": "berth-client"}
        if isinstance(self.key, str) and self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        own = {"base_url": self.address, "headers": headers, "timeout": self.request_seconds, "limits": limits}
        return {**own, "auth": AskedKey(self.key)} if callable(self.key) else own

    def key_for(self, call: Call[Any]) -> str | None:
        """The idempotency key of a write: the caller's own, or `client:sequence:nonce`; None for a read."""
        if not call.writes:
            return None
        return call.idempotency_key or f"{self.client_id}:{next(self._sequence)}:{secrets.token_hex(8)}"


def request_arguments(call: Call[Any], key: str | None) -> dict[str, Any]:
    """Arguments for `httpx.Client.request`. Raises `Invalid` for text that cannot be sent, such as a lone surrogate."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise Invalid("an idempotency key is 1 to 255 printable ASCII characters", code="invalid")
    headers = {} if key is None else {"Idempotency-Key": key}
    arguments: dict[str, Any] = {"method": call.method, "url": call.path, "params": call.query, "headers": headers}
    if call.body is not None:
        arguments["json"] = call.body
    try:
        for sent in (call.path, call.query, call.body):
            json.dumps(sent, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{error.object[error.start : error.end]!r} is not Unicode text", code="invalid") from error
    return arguments


def read_answer(call: Call[Result], response: httpx.Response) -> Result:
    """The validated answer; raises the named error of a refusal, or `BerthError` for an answer that is no answer."""
    if response.is_success:
        try:
            return call.answer.validate_json(response.content or b"null")
        except ValidationError as error:
            raise BerthError(
                f"{call.method} {call.path} answered something this client cannot read: {error.errors()[0]['msg']}",
                code="unreadable_answer",
                status=response.status_code,
                outcome="unknown" if call.writes else "not_done",
            ) from error
    raise error_from_problem(response.status_code, _problem(response), response.headers.get("retry-after"))


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


class Waiting:
    """Decides, answer by answer, whether an allocation has come where it was waited for. Pure but for the clock."""

    def __init__(self, allocation_id: UUID, states: Collection[str], timeout_seconds: float) -> None:
        self.allocation_id = allocation_id
        self.states = frozenset(states)
        self.timeout_seconds = timeout_seconds
        self._until = time.monotonic() + timeout_seconds
        self._pause = POLL_SECONDS_FIRST

    def pause_seconds(self, allocation: Allocation) -> float | None:
        """None when the state is reached, else how long to wait before asking again.

        Raises `StateUnreachable` when the allocation has ended otherwise, `WaitTimeout` when the time is up.
        """
        if allocation.status in self.states:
            return None
        wanted = " or ".join(sorted(self.states))
        if allocation.status in FINAL_STATES:
            why = f": {allocation.failure.code}: {allocation.failure.detail}" if allocation.failure else ""
            raise StateUnreachable(
                f"allocation {self.allocation_id} is {allocation.status} and will not become {wanted}{why}",
                code="state_unreachable",
                extra={"allocation": allocation, "state": allocation.status},
            )
        left = self._until - time.monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"{self.allocation_id} is {allocation.status} after {self.timeout_seconds:g} s, not {wanted}",
                code="wait_timeout",
                extra={"allocation": allocation, "state": allocation.status},
            )
        pause = min(self._pause * random.uniform(0.75, 1.0), left)
        self._pause = min(self._pause * 1.5, POLL_SECONDS_MAX)
        return pause
