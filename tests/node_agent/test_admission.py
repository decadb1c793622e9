"""What the agent takes, what it refuses aloud, and what it does not even answer."""

from __future__ import annotations

import base64
import datetime as dt
import re
import uuid
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.admission import Admitted, Refused, Trust, Untrusted, admit
from node_agent.clock import ServerClock
from node_agent.connection import Unreachable, understood
from node_agent.journal_records import Accepted
from node_agent.journal_state import JournalState
from node_agent.protocol import (
    DEPLOY_TASKS,
    OF_SITES,
    Credentials,
    Envelope,
    HandedOutTask,
    HeartbeatAnswer,
    ResultAnswer,
    TaskBody,
    TaskType,
    VerifyingKey,
    WaitAnswer,
    sign_task,
)
from node_agent.wire.fields import FromServer

KEY, OTHER_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
NODE, NOW = uuid.uuid4(), dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TRUST = Trust(NODE, 3, {"k": KEY.public_key()})


def body(**changes: Any) -> TaskBody:
    fields: dict[str, Any] = {
        "task_id": uuid.uuid4(), "type": TaskType.VM_RELEASE, "node_id": NODE, "node_epoch": 3,
        "allocation_id": uuid.uuid4(), "fence": 10, "parameters": {"slots": [0]},
        "not_before": NOW - dt.timedelta(minutes=1), "expires_at": NOW + dt.timedelta(minutes=1), "key_id": "k",
    }  # fmt: skip
    return TaskBody.model_validate({**fields, **changes})


def clock(now: dt.datetime = NOW) -> ServerClock:
    made = ServerClock(monotonic=lambda: 0.0)
    made.observe(now)
    return made


def judged(
    task: TaskBody, key: Ed25519PrivateKey = KEY, state: JournalState | None = None, now: dt.datetime = NOW
) -> Admitted | Refused | Untrusted:
    handed = HandedOutTask(task_id=task.task_id, envelope=sign_task(task, key))
    return admit(handed, TRUST, state or JournalState(), clock(now))


def test_a_good_task_is_taken() -> None:
    task = body()
    assert judged(task) == Admitted(task)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (body(node_epoch=2), "epoch"),
        (body(node_epoch=4), "epoch"),
        (body(expires_at=NOW), "expired"),
        (body(not_before=NOW + dt.timedelta(seconds=3)), "not valid before"),
        (body(parameters={"slots": []}), "parameters"),
        (body(needs=["shredding"]), "it needs shredding"),
        (body(type="allocation.shred"), "its type is not known"),
        (body(type=TaskType.VM_PROVISION), "parameters"),
        (body(allocation_id=None), "names no allocation"),
        *((body(type=kind, parameters={}), "agent of a site") for kind in sorted(OF_SITES)),
        *((body(type=kind, parameters={}), "deploy system") for kind in sorted(DEPLOY_TASKS)),
    ],
)
def test_a_trusted_task_that_must_not_run_is_refused_with_a_reason(task: TaskBody, why: str) -> None:
    verdict = judged(task)
    assert isinstance(verdict, Refused)
    assert verdict.body == task
    assert why in verdict.detail


def test_an_older_fence_is_refused() -> None:
    state = JournalState()
    state.apply(Accepted(envelope=sign_task(body(fence=11), KEY)))
    verdict = judged(body(fence=10), state=state)
    assert isinstance(verdict, Refused)
    assert "older" in verdict.detail
    assert isinstance(judged(body(fence=12), state=state), Admitted)


def test_an_untrusted_envelope_gets_no_report() -> None:
    task = body()
    assert judged(task, key=OTHER_KEY) == Untrusted("bad_signature")
    assert judged(body(key_id="unknown")) == Untrusted("unknown_key")
    assert judged(body(node_id=uuid.uuid4())) == Untrusted("wrong_node")
    other_label = HandedOutTask(task_id=uuid.uuid4(), envelope=sign_task(task, KEY))
    assert admit(other_label, TRUST, JournalState(), clock()) == Untrusted("wrong_task_id")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_changed_bit_of_a_signed_task_is_believed(data: st.DataObject) -> None:
    task = body()
    envelope = sign_task(task, KEY)
    payload = bytearray(base64.b64decode(envelope.payload))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    forged = Envelope(payload=base64.b64encode(payload).decode(), signatures=envelope.signatures)
    verdict = admit(HandedOutTask(task_id=task.task_id, envelope=forged), TRUST, JournalState(), clock())
    assert verdict == Untrusted("bad_signature")


def test_time_is_the_servers_and_runs_on_by_the_monotonic_clock() -> None:
    seconds = 100.0
    judge = ServerClock(monotonic=lambda: seconds)
    assert judge.seconds_since_contact() == float("inf")
    with pytest.raises(LookupError):
        judge.now()
    judge.observe(NOW)
    seconds = 159.0
    assert judge.now() == NOW + dt.timedelta(seconds=59)
    task = body()
    handed = HandedOutTask(task_id=task.task_id, envelope=sign_task(task, KEY))
    assert isinstance(admit(handed, TRUST, JournalState(), judge), Admitted)
    seconds = 160.0
    assert isinstance(admit(handed, TRUST, JournalState(), judge), Refused)


def test_an_answer_that_lay_about_never_gives_an_expired_task_time_back() -> None:
    seconds = 0.0
    judge = ServerClock(monotonic=lambda: seconds)
    judge.observe(NOW)
    seconds = 100.0
    judge.observe(NOW + dt.timedelta(seconds=1), asked_seconds_ago=100.0)
    assert judge.now() == NOW + dt.timedelta(seconds=100)
    judge.observe(NOW + dt.timedelta(seconds=130), asked_seconds_ago=30.0)
    assert judge.now() == NOW + dt.timedelta(seconds=130)
    judge.observe(NOW + dt.timedelta(seconds=99), asked_seconds_ago=0.1)
    assert judge.now() == NOW + dt.timedelta(seconds=99), "a direct answer corrects in either direction"


ANSWERS: list[FromServer] = [
    WaitAnswer(tasks=[HandedOutTask(task_id=uuid.uuid4(), envelope=sign_task(body(), KEY))], server_time=NOW),
    ResultAnswer(applied=False, reason="superseded"),
    HeartbeatAnswer(server_time=NOW, node_state="active"),
    Credentials(
        node_id=NODE, node_epoch=3, certificate_pem="c", ca_pem="a", node_api_url="https://n", server_time=NOW,
        verifying_keys=[VerifyingKey(key_id="k", public_key="p")],
    ),
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_the_agent_accepts_unknown_fields_of_a_newer_control_plane(answer: FromServer) -> None:
    newer = {**answer.model_dump(mode="json"), "said_since_the_next_version": {"a": 1}}
    assert type(answer).model_validate(newer) == answer


def test_an_invalid_server_response_is_described_in_the_error() -> None:
    content = b'{"tasks": [{"task_id": "x", "envelope": 1}], "server_time": "now"}'
    with pytest.raises(Unreachable) as told:
        understood(httpx.Response(200, content=content), WaitAnswer)
    assert re.fullmatch(r"the server's answer is not WaitAnswer: tasks\.0\.task_id, [\w., ]+", str(told.value))
