"""A task names the size of its guest, and none is issued to an agent that does not know sizes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from node_agent.protocol import FailureCode, ProvisionParameters
from node_agent.wire.guests import GUEST_SIZE_FEATURE, GuestSize
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.outcomes import Concluded, Superseded
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    TENANT,
    allocation_of,
    failed,
    operation,
    provision,
    report,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import connect, create_allocation, seed

GIB = 2**30


def put(url: str, statement: str) -> None:
    with connect(url) as connection:
        connection.execute(statement)


def sized(
    url: str, vcpus: int | None = 16, memory_bytes: int | None = 64 * GIB, features: str = GUEST_SIZE_FEATURE
) -> Any:
    """A fleet whose SKU states a size, on agents with these features."""
    seeded = seed(url)
    with connect(url) as connection:
        connection.execute(
            "update skus set vcpus_per_gpu = %s, memory_bytes_per_gpu = %s where shape = 'gpu_slice'",
            (vcpus, memory_bytes),
        )
        connection.execute(
            "update nodes set agent_features = %s, agent_version = '0.1'", ([features] if features else [],)
        )
    return seeded


def parameters_of(url: str, allocation_id: Any) -> dict[str, Any]:
    """The parameters of the newest task."""
    body = json.loads(base64.b64decode(task_of(url, allocation_id)["envelope"]["payload"]))
    return dict(body["parameters"])


@pytest.mark.parametrize(
    ("vcpus", "memory_bytes", "expected"),
    [
        (16, 64 * GIB, GuestSize(vcpus=32, memory_bytes=128 * GIB)),
        (16, None, GuestSize(vcpus=32)),
        (None, 64 * GIB, GuestSize(memory_bytes=128 * GIB)),
        (None, None, None),
    ],
)
def test_a_task_names_the_size_of_all_gpus(
    database_url: str, vcpus: int | None, memory_bytes: int | None, expected: GuestSize | None
) -> None:
    seeded = sized(database_url, vcpus, memory_bytes, GUEST_SIZE_FEATURE if expected else "")
    allocation = create_allocation(database_url, seeded, gpus=2)

    async def work(context: Context) -> None:
        await begin_provisioning(context, allocation, "wf")

    run_with(database_url, work)
    parameters = parameters_of(database_url, allocation)
    assert ProvisionParameters.model_validate(parameters).guest_size == expected
    assert ("guest_size" in parameters) is (expected is not None), "an agent of the version before refuses the member"


def test_an_agent_that_knows_no_sizes_gets_no_task_and_the_allocation_fails_with_the_code(database_url: str) -> None:
    seeded = sized(database_url, features="burn_in")
    allocation = create_allocation(database_url, seeded)

    async def work(context: Context) -> None:
        begun = await begin_provisioning(context, allocation, "wf")
        assert begun == Concluded(AllocationState.FAILED, code="guest_size_unsupported", cleanup=True)
        assert await begin_provisioning(context, allocation, "wf") == Superseded(AllocationState.FAILED)

    run_with(database_url, work)
    assert rows_of(database_url, "select count(*) from node_tasks") == [(0,)]
    row = allocation_of(database_url, allocation)
    assert (row["failure_code"], "version 0.1" in row["failure_detail"]) == ("guest_size_unsupported", True)


def test_a_rebuild_keeps_the_size_and_is_not_ordered_of_an_agent_that_knows_none(database_url: str) -> None:
    seeded = sized(database_url)
    allocation = create_allocation(database_url, seeded)

    async def rebuild(context: Context) -> None:
        await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, allocation, Verb.REBUILD)

    async def work(context: Context) -> None:
        await provision(context, database_url, allocation)
        await rebuild(context)
        await begin_verb(context, allocation, "wf")
        size = {"vcpus": 16, "memory_bytes": 64 * GIB}
        assert parameters_of(database_url, allocation)["guest_size"] == size
        task = task_of(database_url, allocation)
        await report(context, task, failed(task, FailureCode.GUEST_SIZE_UNAVAILABLE))
        await finish_verb(context, allocation)
        assert allocation_of(database_url, allocation)["guest_state"] == "running", "nothing was touched"
        put(database_url, "update nodes set agent_features = '{}'")
        tasks = rows_of(database_url, "select count(*) from node_tasks")
        await rebuild(context)
        assert await begin_verb(context, allocation, "wf") == Superseded(AllocationState.ACTIVE)
        assert rows_of(database_url, "select count(*) from node_tasks") == tasks

    run_with(database_url, work)
    row = allocation_of(database_url, allocation)
    assert (row["guest_verb"], row["guest_state"], row["guest_failure_code"]) == (
        None, "running", "guest_size_unsupported",
    )  # fmt: skip
    payload = rows_of(
        database_url, "select payload from outbox where event_type = 'allocation.verb_failed' order by id desc limit 1"
    )[0][0]
    assert payload["code"] == "guest_size_unsupported"
