"""Discoveries of several nodes, and what is known of their hardware afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from node_agent.wire.topology import Disk, Gpu, Topology
from orchestrator.nodes.commands.repairs import close_repair, open_repair
from orchestrator.nodes.commands.topologies import issue_discovery, take_discovery
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, completed, report, row_of, rows_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import SLOTS
from tests.discovery.topologies import DAY_SECONDS, beat, gpu, result_of, topology


def machine(serials: Sequence[str | None], disks: Sequence[str] = (), **changes: Any) -> Topology:
    """A machine of eight GPUs with these serial numbers, in the order of its slots, and these disks."""
    assert len(serials) == SLOTS
    gpus = [gpu(index, serial=serial, uuid=f"GPU-{serial}") for index, serial in enumerate(serials)]
    drives = [Disk(name=f"nvme{index}n1", model="SSD", serial=serial) for index, serial in enumerate(disks)]
    return topology(**{"gpus": gpus, "disks": drives, **changes})


def serials(letter: str) -> list[str | None]:
    """Serial numbers of the eight GPUs of a machine."""
    return [f"{letter}-000{index}" for index in range(SLOTS)]


def without(found: Topology, index: int) -> Topology:
    """The machine without the GPU of this slot."""
    gpus = [one for number, one in enumerate(found.gpus or ()) if number != index]
    return found.model_copy(update={"gpus": gpus})


def with_gpu(found: Topology, index: int, **changes: Any) -> Topology:
    """The machine with another GPU in this slot."""
    gpus: list[Gpu] = list(found.gpus or ())
    gpus[index] = gpus[index].model_copy(update=changes)
    return found.model_copy(update={"gpus": gpus})


async def answer_discovery(context: Context, url: str, node_id: uuid.UUID, found: Topology) -> None:
    """A discovery of the node, started again: issued and answered, and not yet taken in."""
    await beat(context, node_id, uuid.uuid4())
    task_id = await issue_discovery(context, node_id, DAY_SECONDS)
    assert task_id is not None
    task = row_of(url, "select * from node_tasks where id = %s", task_id)
    assert (await report(context, task, completed(task, result_of(found)))).applied


async def take(context: Context, url: str, node_id: uuid.UUID, found: Topology) -> None:
    """A whole discovery of the node."""
    await answer_discovery(context, url, node_id, found)
    assert await take_discovery(context, node_id) is not None


def history_of(url: str, serial: str) -> list[tuple[str, str | None]]:
    """What happened to a piece, oldest first, and at which node."""
    return rows_of(
        url,
        "select h.happened, n.name from hardware_history h left join nodes n on n.id = h.node_id where h.serial = %s"
        " order by h.id",
        serial,
    )


def places(url: str, serial: str) -> list[tuple[str, list[int], bool, bool]]:
    """Nodes that have a piece, with its slots, whether it is missing, and whether it is contested."""
    return rows_of(
        url,
        "select n.name, p.slots, p.missing_since is not null, p.contested_since is not null from hardware_places p"
        " join nodes n on n.id = p.node_id where p.serial = %s order by n.name",
        serial,
    )


async def repair(context: Context, serial: str, reason: str = "XID 79") -> Answer:
    """Open a repair."""
    return await open_repair(context, admin_operation(), ADMIN, serial=serial, reason=reason)


async def close(context: Context, repair_id: str, result: str = "reseated") -> Answer:
    """Close a repair."""
    return await close_repair(context, admin_operation(), ADMIN, uuid.UUID(repair_id), result=result)
