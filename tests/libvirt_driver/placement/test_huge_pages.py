"""Huge pages: counted before the guest is defined, on the NUMA nodes that it is bound to."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.checks.finding import Code
from node_agent.checks.resources import check_resources, wanted_by
from node_agent.drivers.choice import choose_driver
from node_agent.drivers.libvirt.huge_pages import HugePagesShort, require_pages
from node_agent.drivers.libvirt.placement import Cell, GuestPlacement
from node_agent.drivers.libvirt.placing import PlacementSettings
from node_agent.problems import CannotStart
from tests.libvirt_driver.choosing import settings
from tests.libvirt_driver.definitions import defined
from tests.libvirt_driver.placement import hosts

MIB = 2**20
TIB = 2**40


def test_pages_of_the_whole_host_are_counted_for_a_guest_that_is_bound_to_none(tmp_path: Path) -> None:
    with pytest.raises(HugePagesShort, match="the host has 0 free huge pages of 2048 KiB, and the guest needs 4"):
        require_pages(tmp_path, 2048, 8 * MIB, None)
    hosts.huge_pages(tmp_path, reserved=9, free=3)
    with pytest.raises(HugePagesShort, match=r"3 free .* needs 4; write a larger number to /sys/kernel/mm/hugepages/"):
        require_pages(tmp_path, 2048, 8 * MIB, None)
    hosts.huge_pages(tmp_path, reserved=9, free=4)
    require_pages(tmp_path, 2048, 8 * MIB, None)
    unbound = GuestPlacement(cells=[Cell(numa_node=0, processors=[1], memory_bytes=8 * MIB)], is_bound=False)
    require_pages(tmp_path, 2048, 8 * MIB, unbound)


def test_each_numa_node_needs_the_pages_of_its_cell(tmp_path: Path) -> None:
    cells = [Cell(numa_node=node, processors=[node], memory_bytes=4 * MIB) for node in (0, 1)]
    placement = GuestPlacement(cells=cells, is_bound=True)
    hosts.huge_pages(tmp_path, reserved=9, free=9)
    hosts.huge_pages(tmp_path, reserved=9, free=9, node=0)
    hosts.huge_pages(tmp_path, reserved=9, free=1, node=1)
    with pytest.raises(HugePagesShort, match="NUMA node 1 has 1 free huge pages"):
        require_pages(tmp_path, 2048, 8 * MIB, placement)
    hosts.huge_pages(tmp_path, reserved=9, free=2, node=1)
    require_pages(tmp_path, 2048, 8 * MIB, placement)


def test_the_definition_names_the_size_of_the_pages() -> None:
    (page,) = defined(huge_page_kib=1_048_576).iterfind("memoryBacking/hugepages/page")
    assert page.attrib == {"size": "1048576", "unit": "KiB"}


def test_memory_that_is_no_multiple_of_a_page_is_refused_at_the_start(tmp_path: Path) -> None:
    changes = {"guest_dir": tmp_path / "guests", "guest_memory_bytes": 65 * MIB, "libvirt_huge_page_kib": 2048}
    given = settings(tmp_path, **changes)
    with pytest.raises(CannotStart, match="no multiple of BERTH_LIBVIRT_HUGE_PAGE_KIB"):
        choose_driver(given)
    with pytest.raises(ValueError, match="libvirt_reserved_processors"):
        settings(tmp_path, libvirt_reserved_processors="first")


WANTED = PlacementSettings(processors=2, memory_bytes=4 * MIB, slots=3, huge_page_kib=2048)
MOUNTED = {"proc/mounts": "hugetlbfs /dev/hugepages hugetlbfs rw 0 0"}


@pytest.mark.parametrize(
    ("reserved", "files", "code", "words"),
    [
        (0, MOUNTED, Code.HUGE_PAGES_ABSENT, "none of 2048 KiB"),
        (6, {"proc/mounts": "none /hugetlbfs tmpfs rw 0 0"}, Code.HUGETLBFS_ABSENT, "no hugetlbfs"),
        (
            5,
            MOUNTED,
            Code.HUGE_PAGES_TOO_FEW,
            "5 of 2048 KiB are reserved, 5 of them free; a slot needs 2, all slots 6",
        ),
        (6, MOUNTED, None, "6 of them free"),
    ],
    ids=["none", "not mounted", "too few", "enough"],
)
def test_the_check_of_pages_that_guests_use(
    tmp_path: Path, reserved: int, files: dict[str, object], code: Code | None, words: str
) -> None:
    hosts.put(tmp_path, files)
    hosts.huge_pages(tmp_path, reserved=reserved, free=reserved)
    finding = check_resources(tmp_path, WANTED)[1]
    assert (finding.code, words in finding.found) == (code, True), finding.line()
    assert code is None or "hugepagesz=2M hugepages=6" in finding.remedy or code is Code.HUGETLBFS_ABSENT


def test_the_check_says_whether_guests_are_pinned_and_why_not(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=2, cores=4)
    found = [check_resources(tmp_path, PlacementSettings(1, MIB, slots=slots))[0] for slots in (0, 6, 8)]
    assert [one.code for one in found] == [Code.SLOTS_UNKNOWN, None, Code.PROCESSORS_TOO_FEW]
    assert found[1].found == "each of 6 slots has its own 1"


def test_the_check_says_whether_memory_is_bound_and_why_not(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=2, cores=4)  # with a GiB of memory each
    found = [check_resources(tmp_path, PlacementSettings(1, each * MIB, slots=4))[1] for each in (512, 513)]
    assert [(one.name, one.code) for one in found] == [
        ("numa memory", None), ("numa memory", Code.NODE_MEMORY_TOO_SMALL),
    ]  # fmt: skip
    assert "NUMA node 0 has 1073741824 bytes" in found[1].found
    hosts.processors(tmp_path / "small", nodes=1, cores=4)
    assert len(check_resources(tmp_path / "small", PlacementSettings(1, TIB, slots=2))) == 2


def test_the_check_of_a_host_reads_the_environment_of_the_agent() -> None:
    assert wanted_by({}) == PlacementSettings(2, 4 * 2**30)
    environment = {
        "BERTH_GUEST_PROCESSORS": "8", "BERTH_LIBVIRT_SLOTS": "4", "BERTH_LIBVIRT_RESERVED_PROCESSORS": "0-1",
        "BERTH_LIBVIRT_HUGE_PAGE_KIB": "2048", "BERTH_GUEST_MEMORY_BYTES": "x",
    }  # fmt: skip
    assert wanted_by(environment) == PlacementSettings(8, 4 * 2**30, 4, (0, 1), 2048)
    assert wanted_by({"BERTH_LIBVIRT_RESERVED_PROCESSORS": "x"}).reserved is None
