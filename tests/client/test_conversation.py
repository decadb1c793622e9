"""Whatever the network does, the outcome that the client reports for a write is true and stays true (P12).

The server here is a few lines of what DESIGN §6 promises, and its network loses, delays and refuses at hypothesis's choice.
`test_cut_connections.py` does the same with real servers and sockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from berth.client import BerthError, InvalidState, OperationFenced, OutcomeUnknown, Unavailable
from berth.client.calls.call import Call
from berth.client.requests.conversation import Done, Heard, Pause, Send, converse, step_after
from berth.client.requests.exchange import Exchange, RequestArguments

WRITE = Call("POST", "/api/v1/things", TypeAdapter(dict[str, int]), body={})
REFUSAL = {"code": "invalid_state", "status": 409, "detail": "no", "outcome": "not_done", "state": "x"}
FENCED = {"code": "operation_fenced", "status": 409, "detail": "too late", "outcome": "not_done"}

TROUBLES = (
    "unreachable", "lost before", "lost after", "delayed", "overloaded", "database_unavailable", "unauthenticated",
    "outcome_unknown before", "outcome_unknown after", "operation_in_progress", "gateway before", "gateway after",
)  # fmt: skip
STATUS = {"overloaded": 503, "database_unavailable": 503, "unauthenticated": 401, "outcome_unknown": 503,
          "operation_in_progress": 409}  # fmt: skip
OUTCOME = {"outcome_unknown": "unknown", "operation_in_progress": "in_progress"}


def answer(status: int, body: object) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


@dataclass
class Deployment:
    """Operations as promised: one record a key, a tombstone for a key that was asked for, effects counted."""

    refuses: bool
    forgets: bool
    records: dict[str, httpx.Response] = field(default_factory=dict)
    effects: int = 0
    late: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def handle(self, request: RequestArguments) -> httpx.Response:
        """What the server answers a request that reached it."""
        if request["method"] == "GET":
            return self._tell(str(request["url"]).rsplit("/", 1)[1].replace("%3A", ":").replace("%2E", "."))
        headers = request["headers"]
        assert isinstance(headers, dict)
        return self.run(headers["Idempotency-Key"])

    def run(self, key: str) -> httpx.Response:
        """One write."""
        if key not in self.records:
            self.effects += not self.refuses
            self.records[key] = answer(409, REFUSAL) if self.refuses else answer(201, {"made": self.effects})
        return self.records[key]

    def _tell(self, key: str) -> httpx.Response:
        if self.forgets:
            return answer(200, {"key": key, "state": "retired"})
        known = self.records.setdefault(key, answer(409, FENCED))
        if known.json() == FENCED:
            return answer(200, {"key": key, "state": "unknown"})
        state = "committed" if known.is_success else "rejected"
        return answer(200, {"key": key, "state": state, "status": known.status_code, "result": known.json()})


def heard_of(deployment: Deployment, step: Send, trouble: str | None) -> Heard:
    """What the client hears of one request, and what the server has seen of it."""
    request = step.arguments
    reading = request["method"] == "GET"
    if trouble is None:
        return deployment.handle(request)
    if trouble == "unreachable":
        return httpx.ConnectError("refused")
    if trouble.endswith("after"):
        deployment.handle(request)
    if trouble == "delayed" and not reading:
        deployment.late.append(request["headers"]["Idempotency-Key"])
    if trouble.startswith("lost") or trouble == "delayed":
        return httpx.ReadError("reset")
    if trouble.startswith("gateway"):
        return httpx.Response(504, content=b"<html>")
    code = trouble.split(" ")[0]
    return answer(STATUS[code], {"code": code, "detail": code, "outcome": OUTCOME.get(code, "not_done")})


@pytest.fixture(autouse=True)
def _no_state_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.client.requests.exchange.kept_client_id", lambda: "c")


@settings(max_examples=500)
@given(
    troubles=st.lists(st.sampled_from(TROUBLES), max_size=6),
    last=st.none() | st.sampled_from(TROUBLES),
    refuses=st.booleans(),
    forgets=st.booleans(),
)
def test_the_reported_outcome_is_true_and_stays_true(
    troubles: list[str], last: str | None, refuses: bool, forgets: bool
) -> None:
    now = 1000.0
    deployment = Deployment(refuses, forgets)
    exchange = Exchange("http://berth.invalid", None, retry_seconds=10.0, time_asked=True)
    come: Iterator[str] = iter(troubles)
    result: dict[str, int] | None = None
    error: BerthError | None = None
    told: list[httpx.Response | None] = []
    with mock.patch("berth.client.requests.conversation.steady_seconds", side_effect=lambda: now):
        talk = converse(exchange, WRITE)
        heard: Heard = None
        try:
            while not isinstance(step := step_after(talk, heard), Done):
                heard = None
                if isinstance(step, Pause):
                    now += step.seconds
                else:
                    assert isinstance(step, Send)
                    now += 0.01
                    if step.arguments["method"] == "POST":
                        deployment.keys.add(step.arguments["headers"]["Idempotency-Key"])
                    heard = heard_of(deployment, step, next(come, last))
                    if step.arguments["method"] == "GET":
                        told.append(heard if isinstance(heard, httpx.Response) and heard.is_success else None)
            result = step.result
        except BerthError as raised:
            error = raised
    assert len(deployment.keys) == 1
    assert now <= 1000.0 + exchange.retry_seconds + 5.5
    for key in deployment.late:
        deployment.run(key)
    assert deployment.effects <= 1
    if result is not None:
        assert result == {"made": 1}
        assert deployment.effects == 1
        return
    assert error is not None
    assert error.idempotency_key in deployment.keys
    if isinstance(error, InvalidState):
        assert refuses
    elif error.outcome == "not_done":
        assert deployment.effects == 0
    else:
        assert isinstance(error, OutcomeUnknown)
        assert told, "its key was asked for"
        assert told[-1] is None or told[-1].json()["state"] == "retired"


def test_an_unknown_key_is_definitely_not_done() -> None:
    """The answer is lost, the rest is refused, and the key turns out never to have come: what came last, as not done."""
    deployment = Deployment(refuses=False, forgets=False)
    exchange = Exchange("http://berth.invalid", None, retry_seconds=0, time_asked=True)
    talk = converse(exchange, WRITE)
    asked = step_after(talk, None)
    assert isinstance(asked, Send)
    question = step_after(talk, httpx.ReadError("reset"))
    assert isinstance(question, Send)
    assert question.arguments["method"] == "GET"
    with pytest.raises(Unavailable, match="will not be under this key") as raised:
        step_after(talk, deployment.handle(question.arguments))
    assert raised.value.outcome == "not_done"
    again = converse(exchange, WRITE)
    step_after(again, None)
    with pytest.raises(OperationFenced):
        step_after(again, deployment.run(asked.arguments["headers"]["Idempotency-Key"]))
