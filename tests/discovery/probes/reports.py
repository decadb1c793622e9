"""Reports made by hand, and one round of a probe in place of worker and node."""

from __future__ import annotations

import uuid
from typing import Any

from node_agent.protocol import FailureCode
from node_agent.wire.health import DiskHealth, GpuHealth, HealthReport, MemoryController, NicHealth, PluginResult, Xid
from orchestrator.nodes.commands.probes import ProbePolicy, Taken, issue_probe, take_probe
from orchestrator.nodes.probes.queries import find_due_probes, find_ended_probes
from orchestrator.operations.execution import Context
from tests.allocations.driving import completed, failed, report, row_of
from tests.allocations.seeding import SLOTS, connect
from tests.discovery.topologies import discover, topology
from tests.discovery.trees import GPU_ADDRESSES

HOUR_SECONDS = 3600.0
POLICY = ProbePolicy(HOUR_SECONDS, 5, {})


def gpu(index: int, **changes: Any) -> GpuHealth:
    """A healthy GPU."""
    content: dict[str, Any] = {
        "address": GPU_ADDRESSES[index], "ecc_corrected": 0, "ecc_uncorrected": 0, "ecc_uncorrected_lifetime": 0,
        "remapped_corrected": 0, "remapped_uncorrected": 0, "remap_pending": False, "remap_failed": False,
        "temperature_celsius": 40, "slowdown_celsius": 87, "throttle_reasons": ["idle"], "nvlinks": 18,
        "nvlinks_up": 18, "nvlink_errors": 0, "xids": [],
    }  # fmt: skip
    return GpuHealth(**{**content, **changes})


def disk(**changes: Any) -> DiskHealth:
    """A healthy disk."""
    content: dict[str, Any] = {
        "name": "nvme0n1", "source": "smartctl", "passed": True, "state": "live", "critical_warning": 0,
        "percentage_used": 3, "media_errors": 0,
    }  # fmt: skip
    return DiskHealth(**{**content, **changes})


def nic(**changes: Any) -> NicHealth:
    """A healthy port."""
    content = {"name": "ens0", "carrier": True, "carrier_losses": 1, "receive_errors": 0, "transmit_errors": 0}
    return NicHealth(**{**content, **changes})


def plugin(verdict: Any, **changes: Any) -> PluginResult:
    """What a plugin found."""
    return PluginResult(**{"name": "fans", "verdict": verdict, "evidence": "fan 3", **changes})


def health(*changed: GpuHealth, **changes: Any) -> HealthReport:
    """A machine with eight GPUs; those given differ."""
    gpus = {one.address: one for one in (*(gpu(index) for index in range(SLOTS)), *changed)}
    content: dict[str, Any] = {
        "driver": "libvirt", "memory": [MemoryController(name="mc0", corrected=0, uncorrected=0)], "disks": [disk()],
        "gpus": list(gpus.values()), "nics": [nic()], "plugins": [plugin("healthy")],
    }  # fmt: skip
    return HealthReport(**{**content, **changes})


def xid(index: int, code: int = 79, count: int = 1) -> GpuHealth:
    """A GPU about which the driver has logged an error."""
    return gpu(index, xids=[Xid(code=code, count=count)])


def result_of(found: HealthReport) -> dict[str, Any]:
    """The result that an agent reports."""
    return found.model_dump(mode="json", exclude_none=True)


def probe_task(url: str) -> dict[str, Any]:
    """The only task of a probe."""
    return row_of(url, "select * from node_tasks where type = 'diag.health_probe'")


async def find_gpus(context: Context, url: str, node_id: uuid.UUID) -> None:
    """A discovery that names the GPU of each slot."""
    await discover(context, url, node_id, topology())


async def issue(context: Context) -> list[uuid.UUID]:
    """Issue what is due; return the nodes."""
    due = await find_due_probes(context, 10)
    for node_id in due:
        assert await issue_probe(context, node_id, HOUR_SECONDS) is not None
    return due


async def answer(
    context: Context,
    url: str,
    node_id: uuid.UUID,
    found: HealthReport | FailureCode | dict[str, Any],
    policy: ProbePolicy = POLICY,
) -> Taken:
    """The open probe: answered and taken in."""
    task = probe_task(url)
    if isinstance(found, FailureCode):
        said = failed(task, found)
    else:
        said = completed(task, result_of(found) if isinstance(found, HealthReport) else found)
    assert (await report(context, task, said)).applied
    assert await find_ended_probes(context, 10) == [node_id]
    taken = await take_probe(context, node_id, policy)
    assert taken is not None
    assert await find_ended_probes(context, 10) == []
    return taken


async def probe(
    context: Context,
    url: str,
    node_id: uuid.UUID,
    found: HealthReport | FailureCode | dict[str, Any],
    policy: ProbePolicy = POLICY,
) -> Taken:
    """One probe of a node: due, issued, answered, taken in."""
    with connect(url) as connection:
        connection.execute("update node_health set next_at = clock_timestamp() where node_id = %s", (node_id,))
    assert await issue(context) == [node_id]
    return await answer(context, url, node_id, found, policy)
