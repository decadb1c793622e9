"""Topologies made by hand, and one round of discovery in place of worker and node."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from node_agent.protocol import FailureCode, Heartbeat
from node_agent.wire.topology import Gpu, Nic, NumaNode, PciDevice, Processors, Topology
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.commands.topologies import issue_discovery, take_discovery
from orchestrator.nodes.topology.judging import Taken
from orchestrator.nodes.topology.queries import find_due_nodes, find_ended_discoveries
from orchestrator.operations.execution import Context
from tests.allocations.driving import completed, failed, report, row_of
from tests.allocations.seeding import SLOTS
from tests.discovery.trees import GPU_ADDRESSES, NIC_ADDRESSES

MODEL = "NVIDIA H200 141GB HBM3e"
MEMORY_BYTES = 2048 * 2**30
DAY_SECONDS = 86_400.0


def gpu(index: int, **changes: Any) -> Gpu:
    """One of eight GPUs, four at each socket."""
    content: dict[str, Any] = {
        "address": GPU_ADDRESSES[index], "pci_id": "10de:2335", "driver": "nvidia", "numa_node": index // 4,
        "model": MODEL, "uuid": f"GPU-{index}", "serial": f"165{index}", "mig_enabled": False, "nvlinks": 18,
        "nvlinks_up": 18,
    }  # fmt: skip
    return Gpu(**{**content, **changes})


def port(index: int, **changes: Any) -> Nic:
    """One of two ports."""
    content: dict[str, Any] = {"name": f"ens{index}", "address": NIC_ADDRESSES[index], "link_up": True}
    return Nic(**{**content, **changes})


def topology(**changes: Any) -> Topology:
    """A machine of two sockets with eight GPUs and two ports."""
    gpus = changes.get("gpus", [gpu(index) for index in range(SLOTS)])
    nics = changes.get("nics", [port(0), port(1)])
    devices = [PciDevice(address=g.address, pci_id="10de:2335", pci_class="030200") for g in gpus or ()]
    devices += [PciDevice(address=n.address, pci_id="15b3:1021", pci_class="020000") for n in nics or ()]
    content: dict[str, Any] = {
        "driver": "libvirt", "processors": Processors(architecture="x86_64"), "memory_bytes": MEMORY_BYTES,
        "numa_nodes": [NumaNode(number=number, processors="0-3") for number in range(2)], "gpus": gpus, "nics": nics,
        "pci_devices": devices,
    }  # fmt: skip
    return Topology(**{**content, **changes})


def result_of(found: Topology) -> dict[str, Any]:
    """The result that an agent reports."""
    return found.model_dump(mode="json", exclude_none=True)


def discovery_task(url: str) -> dict[str, Any]:
    """The only discovery task."""
    return row_of(url, "select * from node_tasks where type = 'slice.topology_discover'")


async def beat(
    context: Context, node_id: uuid.UUID, run: uuid.UUID | None = None, features: Sequence[str] = ()
) -> None:
    """A heartbeat of the agent that was started as `run`."""
    heartbeat = Heartbeat(agent_version="1", driver="noop", allocations=[], agent_run=run, features=list(features))
    await record_heartbeat(context, node_id, heartbeat, sandbox_allowed=True)


async def issue(context: Context) -> list[uuid.UUID]:
    """Issue what is due; return the nodes."""
    due = await find_due_nodes(context, 10)
    for node_id in due:
        assert await issue_discovery(context, node_id, DAY_SECONDS) is not None
    return due


async def discover(
    context: Context, url: str, node_id: uuid.UUID, found: Topology | FailureCode, features: Sequence[str] = ()
) -> Taken:
    """One discovery of a node that has just been started: issued, answered, taken in."""
    await beat(context, node_id, uuid.uuid4(), features)
    assert await issue(context) == [node_id]
    task = discovery_task(url)
    answer = failed(task, found) if isinstance(found, FailureCode) else completed(task, result_of(found))
    assert (await report(context, task, answer)).applied
    assert await find_ended_discoveries(context, 10) == [node_id]
    taken = await take_discovery(context, node_id)
    assert taken is not None
    assert await find_ended_discoveries(context, 10) == []
    return taken
