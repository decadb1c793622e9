"""Which tasks a deploy system performs: each of its checks, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.clock import ServerClock
from node_agent.deploy_system.admission import PARAMETERS, Admitted, Refused, Trust, Untrusted, admit
from node_agent.deploy_system.performing import work_of_machine
from node_agent.key_set import KeySet, key_id, task_key
from node_agent.protocol import DEPLOY_TASKS, HandedOutTask, TaskBody, TaskType, sign_task
from orchestrator.nodes.commands.deploy_tasks import REPORTS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY, OTHER_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
NODE = UUID(int=1)
KEY_SET = KeySet.model_construct(serial=1, task_keys=[task_key(KEY.public_key())], node_cas=[])


def judged(key: Ed25519PrivateKey = KEY, newest_fence: int = 6, handed: UUID | None = None, **changes: Any) -> object:
    """A task with these changes, evaluated."""
    values: dict[str, Any] = {
        "task_id": uuid4(), "type": TaskType.METAL_INSPECT, "node_id": NODE, "node_epoch": 0, "allocation_id": None,
        "fence": 7, "parameters": {"deploy_epoch": 3}, "not_before": NOW, "expires_at": NOW + timedelta(minutes=5),
        "key_id": key_id(key.public_key()),
    }  # fmt: skip
    body = TaskBody(**{**values, **changes})
    clock = ServerClock(lambda: 0.0)
    clock.observe(NOW)
    task = HandedOutTask(task_id=handed or body.task_id, envelope=sign_task(body, key))
    return admit(task, Trust(NODE, 3, KEY_SET), newest_fence, clock)


def test_a_task_for_this_deploy_system_is_performed() -> None:
    found = judged()
    assert isinstance(found, Admitted)
    assert found.parameters.deploy_epoch == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": OTHER_KEY}, "unknown_key"),
        ({"node_id": UUID(int=2)}, "wrong_node"),
        ({"handed": UUID(int=9)}, "wrong_task_id"),
    ],
)
def test_what_is_not_proven_is_never_answered(changes: dict[str, Any], reason: str) -> None:
    found = judged(**changes)
    assert isinstance(found, Untrusted)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"parameters": {"deploy_epoch": 2}}, "deploy epoch 2"),
        ({"parameters": {}}, "parameters"),
        ({"type": TaskType.VM_RELEASE}, "performs no slice.vm_release"),
        ({"fence": 6}, "not newer than 6"),
        ({"expires_at": NOW}, "expired"),
        ({"not_before": NOW + timedelta(minutes=1)}, "not valid before"),
    ],
)
def test_what_must_not_be_done_is_refused(changes: dict[str, Any], why: str) -> None:
    found = judged(**changes)
    assert isinstance(found, Refused)
    assert why in found.detail


def test_every_task_of_a_deploy_system_is_admitted_performed_and_reported() -> None:
    assert set(PARAMETERS) == set(work_of_machine("")) == set(REPORTS) == set(DEPLOY_TASKS)
