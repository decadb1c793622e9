"""What the synchronous and the asynchronous client have in common: settings, headers, reading of answers."""

from __future__ import annotations

import functools
import json
import ssl
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict, TypeVar

import httpx
from pydantic import ValidationError

from berth.client.approvals import ApprovalRequested, RequestedApproval
from berth.client.calls.call import Call
from berth.client.errors import Invalid, UnreadableAnswer
from berth.client.problems import error_from_problem
from berth.client.requests.client_ids import kept_client_id
from berth.client.requests.clocks import ServerClock
from berth.client.requests.credentials import AskedKey, AsyncKeySource, require_confidential, require_sendable
from berth.client.requests.operation_keys import KEY_LENGTH_MAX, KeySequence, encoded_client_id
from berth.process.json_objects import JsonMapping

Result = TypeVar("Result")

REQUEST_SECONDS = 30.0
RETRY_SECONDS = 15.0
RETENTION_SECONDS = 86_400.0
ACCEPTED = 202


class HttpClientArguments(TypedDict):
    """Arguments of `httpx.Client`."""

    base_url: str
    headers: dict[str, str]
    timeout: float
    limits: httpx.Limits
    verify: ssl.SSLContext
    auth: NotRequired[httpx.Auth]


@dataclass
class Exchange:
    """The address and the credentials of requests.

    `retry_seconds` bounds the retrying of one request. `retention_seconds` is how long the deployment keeps an
    operation's answer (its `BERTH_OPERATION_RETENTION_SECONDS`): an older key is asked for, never sent again. Without a
    `client_id` it is the one kept in the user's state directory. `insecure_http`: whether a key may cross a network unencrypted.
    """

    address: str
    key: AsyncKeySource | None
    retry_seconds: float = RETRY_SECONDS
    request_seconds: float = REQUEST_SECONDS
    retention_seconds: float = RETENTION_SECONDS
    client_id: str | None = None
    insecure_http: bool = False
    clock: ServerClock = field(default_factory=ServerClock)
    time_asked: bool = False
    time_question: Future[bool] | None = None

    def __post_init__(self) -> None:
        """Raises `Unauthenticated` for a key that no header can carry, `Invalid` for an unusable client id.

        Raises `InsecureAddress` for a key and an `http://` address that is not a loopback one.
        """
        if self.key and not self.insecure_http:
            require_confidential(self.address)
        if isinstance(self.key, str) and self.key:
            require_sendable(self.key)
        if self.client_id is not None:
            encoded_client_id(self.client_id)
        self.address = self.address.rstrip("/")
        self._drawing = threading.Lock()
        self._keys: KeySequence | None = None

    def join_time_question(self) -> tuple[Future[bool], bool]:
        """The open question for the server's time, and whether the caller has just opened it and must ask and close it.

        Calls that start together on a new client share one question. Its result: whether the others need not ask.
        """
        with self._drawing:
            if self.time_question is not None:
                return self.time_question, False
            self.time_question = Future()
            return self.time_question, True

    def close_time_question(self, *, settled: bool) -> None:
        """Let the waiting calls go on. `settled`: they need not ask for themselves."""
        with self._drawing:
            question, self.time_question = self.time_question, None
        if question is not None:
            question.set_result(settled)

    @property
    def sendable_seconds(self) -> float:
        """How old a key may be and still be sent: its answer is kept until the request has arrived."""
        return self.retention_seconds - min(60.0, self.retention_seconds / 10)

    def settings(self) -> HttpClientArguments:
        """Arguments for an httpx client."""
        headers = {"Accept": "application/json", "User-Agent": "berth-client"}
        if isinstance(self.key, str) and self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        own: HttpClientArguments = {
            "base_url": self.address, "headers": headers, "timeout": self.request_seconds, "limits": limits,
            "verify": _trusted_roots(),
        }  # fmt: skip
        return {**own, "auth": AskedKey(self.key)} if callable(self.key) else own

    def draw_key(self) -> str:
        """The next idempotency key of this client; its sequence begins with the first."""
        if self._keys is None:
            with self._drawing:
                if self._keys is None:
                    self._keys = KeySequence(self.client_id or kept_client_id(), self.clock.now_seconds)
        return str(self._keys.draw())


@functools.cache
def _trusted_roots() -> ssl.SSLContext:
    """What httpx trusts by default, read once for all clients of a process: reading it takes 20 ms."""
    return httpx.create_ssl_context()


class RequestArguments(TypedDict):
    """Arguments of `httpx.Client.request`."""

    method: str
    url: str
    params: NotRequired[dict[str, str | int | list[str]]]
    headers: NotRequired[dict[str, str]]
    json: NotRequired[JsonMapping | None]
    timeout: NotRequired[float]


def request_arguments(call: Call[Any], key: str | None) -> RequestArguments:
    """Arguments for `httpx.Client.request`. Raises `Invalid` for text that cannot be sent, such as a lone surrogate."""
    if key is not None and not (1 <= len(key) <= KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise Invalid(f"an idempotency key is 1 to {KEY_LENGTH_MAX} printable ASCII characters", code="invalid")
    headers = {} if key is None else {"Idempotency-Key": _as_header(key)}
    try:
        for sent in (call.path, call.query, call.body):
            json.dumps(sent, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{error.object[error.start : error.end]!r} is not Unicode text", code="invalid") from error
    return {"method": call.method, "url": call.path, "params": call.query, "headers": headers, "json": call.body}


def _as_header(key: str) -> str:
    """Spaces at the ends of a header's value are lost on the way, unless they are quoted."""
    return key if key == key.strip(" ") else f'"{key}"'


def read_answer(call: Call[Result], response: httpx.Response) -> Result:
    """The validated answer; raises the named error of a refusal, or `UnreadableAnswer` for an answer that is no answer."""
    if response.is_success:
        return validated(call, response.content, response.status_code)
    raise error_from_problem(response.status_code, _problem(response), response.headers.get("retry-after"))


def validated(call: Call[Result], content: bytes, status: int | None) -> Result:
    """The body of a success as the call's result. Raises `UnreadableAnswer`; `ApprovalRequested` if nothing was done yet."""
    if status == ACCEPTED and call.writes:
        _require_no_approval(content)
    try:
        return call.answer.validate_json(content or b"null")
    except ValidationError as error:
        raise UnreadableAnswer(
            f"{call.method} {call.path} answered something this client cannot read: {error.errors()[0]['msg']}",
            code="unreadable_answer",
            status=status,
            outcome="unknown" if call.writes else "not_done",
        ) from error


def _require_no_approval(content: bytes) -> None:
    """Raise `ApprovalRequested` if the response shows a request that a second operator must approve."""
    try:
        document = json.loads(content or b"null")
        requested = RequestedApproval.model_validate(document) if "approval_id" in document else None
    except (ValueError, TypeError):
        return  # another response, or one that cannot be read, as its own validation says
    if requested is not None:
        raise ApprovalRequested(requested)


def _problem(response: httpx.Response) -> JsonMapping:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
