"""The task of a node names what the node needs of an image's statement, and asks no agent for a check that it lacks."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from node_agent.wire.images import IMAGE_CHECKS_FEATURE, ImageParameters
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.operations.execution import Context
from tests.allocations.driving import run_with, task_of
from tests.allocations.seeding import connect, create_allocation, seed

PLAIN = {"name", "url", "sha256"}
FULL: dict[str, Any] = {
    "format": "raw", "firmware": "uefi", "login_user": "debian", "cloud_init": False, "readiness": "tcp_port",
    "readiness_port": 8443, "disk_bytes_min": 1 << 35,
}  # fmt: skip


def image_in_task(url: str, statement: dict[str, Any], features: list[str]) -> dict[str, Any]:
    """The image as the task of a provision names it, of a node whose agent has these features."""
    seeded = seed(url, slice_nodes=1)
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = %s", (features,))
        if statement:
            columns = ", ".join(f"{name} = %({name})s" for name in statement)
            connection.execute(f"update images set {columns}", statement)
    allocation_id = create_allocation(url, seeded)

    async def work(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "provisioning")

    run_with(url, work)
    envelope = task_of(url, allocation_id)["envelope"]
    body = json.loads(base64.b64decode(envelope["payload"]))
    named: dict[str, Any] = body["parameters"]["image"]
    return named


@pytest.mark.parametrize("features", [[], [IMAGE_CHECKS_FEATURE]])
def test_an_image_without_a_statement_is_sent_as_agents_of_the_version_before_know_it(
    database_url: str, features: list[str]
) -> None:
    assert image_in_task(database_url, {}, features).keys() == PLAIN


def test_a_statement_is_sent_to_an_agent_that_checks_images(database_url: str) -> None:
    named = image_in_task(database_url, FULL, [IMAGE_CHECKS_FEATURE])
    assert {name: named[name] for name in named if name not in PLAIN} == FULL


def test_an_agent_of_the_version_before_is_asked_for_no_check_and_refuses_what_changes_the_guest(
    database_url: str,
) -> None:
    named = image_in_task(database_url, {"format": "raw", "disk_bytes_min": 7, "login_user": "debian"}, [])
    assert named.keys() - PLAIN == {"login_user"}, "an agent that does not know the member refuses the task"


@pytest.mark.parametrize("wrong", [{"readiness": "tcp_port"}, {"readiness_port": 1}, {"login_user": "Root"}])
def test_an_agent_refuses_an_image_that_contradicts_itself(wrong: dict[str, Any]) -> None:
    image = {"name": "i", "url": "file:///i", "sha256": "0" * 64}
    assert ImageParameters.model_validate(image).login_user == "tenant"
    with pytest.raises(ValueError, match=r"readiness_port|login_user"):
        ImageParameters.model_validate({**image, **wrong})
