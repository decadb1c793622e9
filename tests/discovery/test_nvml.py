"""Discovery through the real bindings of NVML over a fake library, with the faults of GPUs and of the library."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from node_agent.discovery.children import NoAnswer, ask_child
from node_agent.discovery.discover import discover
from node_agent.wire.topology import Topology
from tests.discovery.fake_nvml import LINKS, MEMORY_BYTES, FakeNvml
from tests.discovery.trees import GPU_ADDRESSES, RecordedTree
from tests.support.waiting import wait_for


def found(tree: RecordedTree, nvml: FakeNvml, seconds: float = 30.0) -> Topology:
    return asyncio.run(discover("libvirt", tree.root, nvml.environment, seconds))


def left_behind() -> list[str]:
    """Command lines of processes of discovery that this process started and that still run."""
    lines = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            lines.append(" ".join(child.cmdline()))
    return [line for line in lines if "node_agent.discovery" in line]


def test_eight_gpus_have_what_both_sources_say(tree: RecordedTree, nvml: FakeNvml) -> None:
    topology = found(tree, nvml)
    gpus = topology.gpus or []
    assert [gpu.address for gpu in gpus] == GPU_ADDRESSES
    assert {(g.model, g.memory_bytes, g.nvlinks, g.nvlinks_up, g.lost) for g in gpus} == {
        ("NVIDIA H100 80GB HBM3", MEMORY_BYTES, LINKS, LINKS, False)
    }
    assert [gpu.serial for gpu in gpus] == [f"165{index:010d}" for index in range(8)]
    assert [gpu.iommu_group for gpu in gpus] == list(range(40, 48))
    assert [gpu.mig_enabled for gpu in gpus] == [False] * 7 + [True]
    assert topology.nvml_driver == "580.95.05"


def test_indices_of_mig_have_gaps(tree: RecordedTree, nvml: FakeNvml) -> None:
    assert (found(tree, nvml).gpus or [])[7].mig_instances == 2


def test_a_link_that_is_down(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu3__link5=0)
    gpu = (found(tree, nvml).gpus or [])[3]
    assert (gpu.nvlinks, gpu.nvlinks_up) == (LINKS, LINKS - 1)


def test_a_lost_gpu_is_named(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu5__error=15)
    topology = found(tree, nvml)
    assert [gpu.address for gpu in topology.gpus or () if gpu.lost] == [GPU_ADDRESSES[5]]
    assert {gap.subject for gap in topology.gaps} >= {"nvml gpu 5", GPU_ADDRESSES[5]}


def test_a_gpu_that_is_gone_from_the_bus(tree: RecordedTree, nvml: FakeNvml) -> None:
    tree.remove_pci(GPU_ADDRESSES[7])
    nvml.answer(count=7)
    topology = found(tree, nvml)
    assert [gpu.address for gpu in topology.gpus or ()] == GPU_ADDRESSES[:7]
    assert [gpu for gpu in topology.gpus or () if gpu.lost] == []


def test_a_gpu_of_a_guest_is_not_lost(tree: RecordedTree, nvml: FakeNvml) -> None:
    driver = tree.root / f"sys/bus/pci/devices/{GPU_ADDRESSES[7]}/driver"
    driver.unlink()
    driver.symlink_to("../../../../bus/pci/drivers/vfio-pci")
    nvml.answer(count=7)
    gpu = (found(tree, nvml).gpus or [])[7]
    assert (gpu.driver, gpu.lost, gpu.model) == ("vfio-pci", False, None)


def test_a_field_that_fails_is_absent(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu0__serial=None, gpu1__name="n" * 200)
    gpus = found(tree, nvml).gpus or []
    assert gpus[0].serial is None
    assert (gpus[1].model, gpus[1].serial) == (None, "1650000000001")


def test_a_hung_call_ends_within_its_deadline(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu2__hang=1)
    began = time.monotonic()
    topology = found(tree, nvml, 1.0)
    assert time.monotonic() - began < 15.0
    assert [(gap.subject, gap.reason) for gap in topology.gaps] == [("nvml", "no answer within 1 s")]
    assert [gpu.address for gpu in topology.gpus or ()] == GPU_ADDRESSES
    assert [gpu for gpu in topology.gpus or () if gpu.lost or gpu.model] == []
    assert left_behind() == []


def test_a_library_that_ends_its_process_does_not_end_the_agent(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu0__crash=1)
    topology = found(tree, nvml)
    assert topology.gaps[0].reason == "the process was ended by signal 11"
    assert len(topology.gpus or ()) == 8


def test_a_driver_that_is_not_loaded(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(error=9)
    topology = found(tree, nvml)
    assert [gap.subject for gap in topology.gaps] == ["nvml"]
    assert [gpu for gpu in topology.gpus or () if gpu.lost] == []


def test_without_the_library_the_bus_names_the_gpus(tree: RecordedTree, tmp_path: Path) -> None:
    topology = asyncio.run(discover("libvirt", tree.root, {"PATH": os.environ["PATH"]}))
    assert [gap.subject for gap in topology.gaps] == ["nvml"]
    assert [gpu.address for gpu in topology.gpus or ()] == GPU_ADDRESSES


def test_without_a_gpu_of_nvidia_nvml_is_not_asked(tree: RecordedTree, nvml: FakeNvml) -> None:
    for address in GPU_ADDRESSES:
        tree.remove_pci(address)
    nvml.answer(error=9)
    topology = found(tree, nvml)
    assert (topology.gpus, topology.gaps) == ([], [])


def test_a_child_that_says_too_much_or_fails_gives_no_answer() -> None:
    environment = {"PATH": os.environ["PATH"]}
    with pytest.raises(NoAnswer, match="exited with 1"):
        asyncio.run(ask_child("node_agent.discovery.no_such_module", (), environment, 20.0))
    with pytest.raises(NoAnswer, match="no answer within 0 s"):
        asyncio.run(ask_child("node_agent.discovery.nvml", (), environment, 0.0))


@pytest.mark.full
def test_cancelled_discovery_leaves_no_process(tree: RecordedTree, nvml: FakeNvml) -> None:
    nvml.answer(gpu2__hang=1)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await discover("libvirt", tree.root, nvml.environment, 60.0)

    asyncio.run(cancelled())
    wait_for(lambda: not left_behind(), "the kernel to end what was killed", 10.0)
    assert left_behind() == []
