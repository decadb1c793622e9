"""A deploy system becomes the tenant's rescue system only once the control plane refuses its certificate for that reason."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node_agent.connection import Unreachable
from node_agent.deploy_system.connection import ENDED, DeployConnection, _ended
from node_agent.deploy_system.process import STATUS
from node_agent.protocol import TaskType
from orchestrator.nodes.commands.deploy_tasks import Advanced
from tests.deploy_system.ordering import claim, order, refused
from tests.deploy_system.stage import Stage
from tests.deploy_system.starting import Started, machine_of
from tests.support.waiting import wait_for


def end(stage: Stage, node: UUID, by: str) -> None:
    """The control plane ends the permission."""
    stage.fleet.connection.execute(
        "update deploy_systems set ended_at = clock_timestamp(), ended_by = %s where node_id = %s", (by, node)
    )


def rescued(stage: Stage, machines: list[Started], directory: Path) -> tuple[UUID, Started]:
    """A machine whose deploy system has reported that the rescue is prepared."""
    node = stage.node()
    permitted = stage.permit(node)
    assert order(stage, node, TaskType.METAL_RESCUE, claim(stage, node, "maintenance")).status == 200
    machine = machine_of(stage, machines, directory, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    wait_for(lambda: stage.advance(node) is Advanced.COMPLETED, "the report")
    return node, machine


def test_it_waits_for_the_hand_over_and_deletes_the_token(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    node, machine = rescued(stage, machines, tmp_path)
    assert machine.thread is not None
    assert not machine.thread.done(), "the permission counts: the tenant must not be let in"
    assert (tmp_path / "medium.json").exists()
    end(stage, node, "handed_over")
    assert machine.ended() == (3, "")
    assert not (tmp_path / "medium.json").exists()
    assert machine.performed == ["MetalRescueParameters"]
    assert stage.shown(node)["state"] == "handed_over"


def test_a_lost_answer_to_its_report_fails_no_rescue(
    stage: Stage, machines: list[Started], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, lost = DeployConnection.post, threading.Event()

    async def losing(connection: DeployConnection, path: str, *arguments: Any) -> Any:
        answer = await post(connection, path, *arguments)
        if path.endswith("/result") and not lost.is_set():
            lost.set()
            end(stage, node, "handed_over")
            raise Unreachable("the answer was lost")
        return answer

    monkeypatch.setattr(DeployConnection, "post", losing)
    node = stage.node()
    permitted = stage.permit(node)
    order(stage, node, TaskType.METAL_RESCUE, claim(stage, node, "maintenance"))
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    assert machine.ended() == (3, "")
    assert lost.is_set()
    assert not (tmp_path / "medium.json").exists()


def test_a_rescue_that_cannot_be_prepared_powers_the_machine_off(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    node = stage.node()
    permitted = stage.permit(node)
    order(stage, node, TaskType.METAL_RESCUE, claim(stage, node, "maintenance"))
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    assert machine.ended() == (0, "")
    assert stage.advance(node) is Advanced.FAILED
    assert stage.listed(node)["failure"].startswith("rescue_unavailable: ")


@pytest.mark.parametrize("by", ["revoked", "superseded"])
def test_any_other_end_of_the_permission_is_no_hand_over(
    stage: Stage, machines: list[Started], tmp_path: Path, by: str
) -> None:
    node, machine = rescued(stage, machines, tmp_path)
    end(stage, node, by)
    status, console = machine.ended()
    assert (status, "may not act any more" in console) == (1, True), console


def test_a_token_of_a_machine_that_was_handed_over_is_refused(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    node = stage.node()
    permitted = stage.permit(node)
    end(stage, node, "handed_over")
    answer = permitted.enrol()
    assert answer.status_code == 403
    refused(answer, 403, "deploy_refused", "handed_over")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"code": "deploy_system_ended", "reason": "revoked"}',
        b'{"code": "unauthenticated", "reason": "handed_over"}',
    ],
)
def test_no_other_answer_is_a_hand_over(content: bytes) -> None:
    assert _ended(content) != ENDED


def test_init_starts_the_server_by_the_status_of_a_hand_over_alone() -> None:
    init = (Path(__file__).parents[2] / "deploy/metal/deploy-init").read_text()
    status = STATUS["hand_over"]  # type: ignore[index]
    before, _, after = init.partition(f'if [ "$status" = {status} ]; then')
    assert "dropbear" not in before
    assert after.index("rm -rf /run/berth /opt/berth /etc/berth") < after.index("dropbear -F -E -s ")
