"""One round of a reset in place of worker and node."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any

from node_agent.protocol import FailureCode, TaskBody
from node_agent.wire.gpu_reset import GpuResetReport, GpuResetResult
from node_agent.wire.topology import Topology
from orchestrator.nodes.commands.gpu_resets import Advanced, advance_gpu_reset, request_gpu_reset
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.gpu_resets.queries import find_open_gpu_resets
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, completed, failed, report, row_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import SLOTS, connect
from tests.discovery.topologies import discover, gpu, topology
from tests.discovery.trees import GPU_ADDRESSES

KEPT = 5


def passed_through(*linked: int) -> Topology:
    """Eight GPUs that the driver of guests holds; those given are of NVIDIA's driver and connected by NVLink."""
    given = {"driver": "vfio-pci", "model": None, "uuid": None, "serial": None, "nvlinks": None, "nvlinks_up": None}
    return topology(gpus=[gpu(index, **({} if index in linked else given)) for index in range(SLOTS)])


async def ready(context: Context, url: str, node: uuid.UUID, found: Topology | None = None) -> None:
    """A node with these GPUs whose agent resets GPUs."""
    await discover(context, url, node, found or passed_through())
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = '{burn_in,gpu_reset}'")


async def take_out(context: Context, node: uuid.UUID, *slots: int) -> None:
    for slot in slots:
        out = await quarantine_slot(context, admin_operation(), ADMIN, node, slot, reason="noise", evidence=None)
        assert out.status == 200


async def bring_back(context: Context, node: uuid.UUID, slot: int, **options: Any) -> Answer:
    return await return_slot(context, admin_operation(), ADMIN, node, slot, note="seen to", **options)


async def ask(context: Context, node: uuid.UUID, slot: int = 3) -> Answer:
    return await request_gpu_reset(context, admin_operation(), ADMIN, node, slot)


def reset_row(url: str) -> dict[str, Any]:
    return row_of(url, "select * from node_gpu_resets order by id desc limit 1")


def reset_task(url: str) -> dict[str, Any]:
    """The only task of a reset."""
    return row_of(url, "select * from node_tasks where type = 'diag.gpu_reset'")


def parameters_of(task: dict[str, Any]) -> dict[str, Any]:
    """What the signed task says."""
    body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
    assert (body.type, body.allocation_id, body.expires_at) == ("diag.gpu_reset", None, task["expires_at"])
    return body.parameters


def results(slots: Sequence[int], **changed: Any) -> GpuResetReport:
    """A report of GPUs that were reset; `changed` differs of the last one."""
    found = [GpuResetResult(address=GPU_ADDRESSES[slot], outcome="reset", method="flr") for slot in slots]
    found[-1] = GpuResetResult(**{**found[-1].model_dump(), **changed})
    return GpuResetReport(driver="libvirt", gpus=found)


async def issue(context: Context, node: uuid.UUID) -> None:
    assert await find_open_gpu_resets(context, 10) == [node]
    assert await advance_gpu_reset(context, node, KEPT) is Advanced.ISSUED
    assert await find_open_gpu_resets(context, 10) == []


async def answer(
    context: Context, url: str, node: uuid.UUID, found: GpuResetReport | FailureCode | dict[str, Any]
) -> Advanced:
    """The open reset, answered and concluded."""
    task = reset_task(url)
    if isinstance(found, FailureCode):
        said = failed(task, found)
    else:
        said = completed(task, json.loads(found.canonical()) if isinstance(found, GpuResetReport) else found)
    assert (await report(context, task, said)).applied
    assert await find_open_gpu_resets(context, 10) == [node]
    advanced = await advance_gpu_reset(context, node, KEPT)
    assert advanced is not None
    assert await advance_gpu_reset(context, node, KEPT) is None, "it is concluded once"
    return advanced


async def reset(context: Context, url: str, node: uuid.UUID, found: Any = None, slot: int = 3) -> Advanced:
    """A whole reset of a slot: requested, issued, answered, concluded."""
    asked = await ask(context, node, slot)
    assert asked.status == 200, asked.body
    await issue(context, node)
    return await answer(context, url, node, results([slot]) if found is None else found)
