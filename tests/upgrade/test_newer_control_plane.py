"""An agent of this version ignores what a newer control plane adds to a signed task, and refuses what it must not pass over."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.admission import Admitted, Refused, Trust, Untrusted, admit
from node_agent.clock import ServerClock
from node_agent.journal_records import Accepted
from node_agent.journal_state import JournalState
from node_agent.protocol import (
    PAYLOAD_TYPE,
    Envelope,
    HandedOutTask,
    ProvisionParameters,
    Signature,
    TaskBody,
    pre_authentication_encoding,
)
from node_agent.wire.features import UNDERSTOOD
from node_agent.wire.fields import UNKNOWN_MEMBERS

KEY = Ed25519PrivateKey.generate()
NODE, NOW = uuid.uuid4(), dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TRUST = Trust(NODE, 3, {"k": KEY.public_key()})
IMAGE = {"name": "i", "url": "https://images.example/i", "sha256": "0" * 64}
PROVISION: Mapping[str, Any] = {
    "slots": [0], "gpu_model": "H100", "image": IMAGE, "ssh_public_keys": ["ssh-ed25519 AAAA"], "hostname": "h",
}  # fmt: skip
TASK: Mapping[str, Any] = {
    "task_id": str(uuid.uuid4()), "type": "slice.vm_provision", "node_id": str(NODE), "node_epoch": 3,
    "allocation_id": str(uuid.uuid4()), "fence": 10, "parameters": PROVISION, "not_before": NOW.isoformat(),
    "expires_at": (NOW + dt.timedelta(minutes=1)).isoformat(), "key_id": "k",
}  # fmt: skip


def signed(task: Mapping[str, Any]) -> Envelope:
    """The task as a control plane of whatever version signs it."""
    payload = json.dumps(task).encode()
    signature = base64.b64encode(KEY.sign(pre_authentication_encoding(PAYLOAD_TYPE, payload))).decode()
    return Envelope(payload=base64.b64encode(payload).decode(), signatures=[Signature(keyid="k", sig=signature)])


def judged(envelope: Envelope) -> Admitted | Refused | Untrusted:
    """What the agent does with it."""
    clock = ServerClock(monotonic=lambda: 0.0)
    clock.observe(NOW)
    return admit(HandedOutTask(task_id=uuid.UUID(TASK["task_id"]), envelope=envelope), TRUST, JournalState(), clock)


def counted(message: str) -> float:
    """How many unknown members of this message were counted so far."""
    return float(UNKNOWN_MEMBERS.labels(message)._value.get())


NEWER: Mapping[str, Any] = {
    **TASK, "trace": {"id": 1},
    "parameters": {**PROVISION, "color": "red", "image": {**IMAGE, "mirror": "https://other.example"}},
}  # fmt: skip


def test_a_task_with_unknown_members_is_performed_as_far_as_it_is_known() -> None:
    before = counted("TaskBody"), counted("ProvisionParameters"), counted("ImageParameters")
    verdict = judged(signed(NEWER))
    assert isinstance(verdict, Admitted), verdict
    assert verdict.body.needs == []
    known = ProvisionParameters.model_validate(PROVISION)
    assert ProvisionParameters.model_validate(verdict.body.parameters) == known
    assert counted("TaskBody") - before[0] == 1
    assert counted("ProvisionParameters") - before[1] == 2, "the task was admitted, and then read here"
    assert counted("ImageParameters") - before[2] == 2


def test_unknown_members_are_covered_by_the_signature_also_in_the_journal() -> None:
    envelope = signed(NEWER)
    changed = base64.b64encode(base64.b64decode(envelope.payload).replace(b'"red"', b'"run"')).decode()
    assert judged(envelope.model_copy(update={"payload": changed})) == Untrusted("bad_signature")

    record = Accepted.model_validate_json(Accepted(envelope=envelope).model_dump_json())
    assert isinstance(judged(record.envelope), Admitted)
    state = JournalState()
    state.apply(record)
    kept = state.tasks[uuid.UUID(TASK["task_id"])].body
    assert kept is not None
    assert kept.parameters == NEWER["parameters"]


def test_a_member_of_an_envelope_outside_its_signature_is_ignored() -> None:
    widened = {**signed(TASK).model_dump(), "payload2": "e30="}
    assert judged(Envelope.model_validate(widened)) == judged(signed(TASK))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"needs": ["painting"]}, "it needs painting"),
        ({"needs": ["guest_size", "painting"]}, "it needs painting"),
        ({"type": "allocation.paint"}, "its type is not known"),
    ],
)
def test_a_task_that_must_be_understood_is_refused_and_the_refusal_is_reported(
    changes: Mapping[str, Any], why: str
) -> None:
    verdict = judged(signed({**NEWER, **changes}))
    assert isinstance(verdict, Refused), "it is answered, so that the control plane does not wait for it"
    assert why in verdict.detail


def test_a_task_that_needs_what_the_agent_knows_is_performed() -> None:
    assert isinstance(judged(signed({**TASK, "needs": sorted(UNDERSTOOD)})), Admitted)


def test_unknown_members_are_bounded() -> None:
    many = {f"member{number}": 1 for number in range(40)}
    assert judged(signed({**TASK, **many})) == Untrusted("malformed")
    assert isinstance(judged(signed({**TASK, "parameters": {**PROVISION, **many}})), Refused)


def test_a_task_without_needs_is_signed_as_the_release_reads_it() -> None:
    body = TaskBody.model_validate(TASK)
    assert "needs" not in json.loads(body.model_dump_json())
    assert json.loads(body.model_copy(update={"needs": ["console"]}).model_dump_json())["needs"] == ["console"]
