"""A real guest of QEMU on the processors of its slot, by /proc; one without huge pages fails before it is defined."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_agent.drivers.contract import DriverFailure
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import usable
from tests.libvirt_driver.placement.harness import Placed

pytestmark = pytest.mark.hardware


def test_a_guest_runs_on_the_processors_of_its_slot_alone(tmp_path: Path) -> None:
    count = os.cpu_count() or 1
    if count < 2:
        pytest.skip("this machine has one processor: none is left for a guest")
    harness = usable(Placed(libvirt_slots=1, libvirt_reserved_processors="0"))

    async def scenario(node: Node) -> None:
        order = node.order()
        order.parameters.slots[:] = [0]
        await perform(node.driver.provision(order), Unheard())
        (pid,) = node.probe.processes()[order.allocation_id]
        threads = {
            (task / "comm").read_text().strip(): os.sched_getaffinity(int(task.name))
            for task in Path(f"/proc/{pid}/task").iterdir()
        }
        processors = {name: held for name, held in threads.items() if name.startswith("CPU ")}
        assert list(processors.values()) == [{1}]
        assert set().union(*threads.values()) == {1}, "no thread of QEMU runs elsewhere"
        await perform(node.release(order), Unheard())

    play(harness, tmp_path, scenario)


def test_too_few_huge_pages_fail_before_the_guest_is_defined(tmp_path: Path) -> None:
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if free.exists() and int(free.read_text()) >= 48:
        pytest.skip("this machine has enough free huge pages")
    harness = usable(Placed(libvirt_huge_page_kib=2048))

    async def scenario(node: Node) -> None:
        order = node.order()
        with pytest.raises(DriverFailure, match="free huge pages of 2048 KiB, and the guest needs 48") as caught:
            await perform(node.driver.provision(order), Unheard())
        assert caught.value.code is FailureCode.HUGE_PAGES_SHORT
        assert not list(Path("/etc/libvirt/qemu").glob(f"berth-{order.allocation_id}.xml"))
        await node.driver.cleanup(order.allocation_id)

    play(harness, tmp_path, scenario)


def test_libvirt_accepts_every_form_of_the_definition() -> None:
    import libvirt

    from tests.libvirt_driver.definitions import ALLOCATION, defined_xml
    from tests.libvirt_driver.placement.hosts import placed_changes

    connection = libvirt.open("qemu:///system")
    for slots in ([3], [2, 0, 3]):
        for changes in ({}, {"huge_page_kib": 2048}, {"shared_processors": [1]}):
            xml = defined_xml(**{**placed_changes(slots), **changes})
            connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
            domain = connection.lookupByUUIDString(str(ALLOCATION))
            assert bool(domain.XMLDesc().count("vcpupin")) is ("placement" in {**placed_changes(slots), **changes})
            domain.undefine()
    connection.close()
