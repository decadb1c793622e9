"""Slots are given processors that they share with no other slot and not with the host, and memory that is near."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from node_agent.drivers.libvirt.host_slots import (
    SLOTS_FILE,
    SlotGpu,
    SlotGpus,
    read_host_slots,
    read_slots_file,
    remembered_gpus,
)
from node_agent.drivers.libvirt.placement import (
    Core,
    GuestPlacement,
    Pinning,
    pin,
    spread,
    why_unbound,
)
from node_agent.drivers.libvirt.placing import PlacementSettings, Placing
from node_agent.wire.processors import listed_processors, parse_processors
from tests.libvirt_driver.definitions import defined, guest
from tests.libvirt_driver.placement import hosts
from tests.libvirt_driver.placement.hosts import GIB, placed_changes


@st.composite
def divided(draw: st.DrawFn) -> tuple[list[Core], list[int], int, set[int] | None]:
    """Cores of a host, the NUMA node of each slot, processors of a slot, and what is reserved."""
    nodes, cores, threads = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(1, 2))
    made = [
        Core(node, tuple(node * cores + core + thread * nodes * cores for thread in range(threads)))
        for node in range(nodes) for core in range(cores)
    ]  # fmt: skip
    slot_nodes = draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=8))
    every = [thread for core in made for thread in core.threads]
    reserved = draw(st.none() | st.sets(st.sampled_from(every), max_size=4))
    return made, slot_nodes, draw(st.integers(1, 4)), reserved


@given(host=divided(), data=st.data())
def test_no_two_slices_share_a_core_and_none_has_one_of_the_host(host: Any, data: st.DataObject) -> None:
    cores, slot_nodes, each, reserved = host
    pinning = pin(cores, slot_nodes, each, reserved)
    assume(pinning.blocks is not None)
    core_of = {thread: core for core in cores for thread in core.threads}
    kept = reserved if reserved is not None else {cores[0].threads[0]}
    slots = range(len(slot_nodes))
    sets = data.draw(st.lists(st.sets(st.sampled_from(slots), min_size=1), min_size=2, max_size=6))
    placed = [(held, _placed(pinning, sorted(held))) for held in sets]
    for held, placement in placed:
        numbers = placement.processors()
        assert len(set(numbers)) == len(numbers) == each * len(held)
        assert kept.isdisjoint(thread for number in numbers for thread in core_of[number].threads)
        assert {cell.numa_node for cell in placement.cells} == {slot_nodes[slot] for slot in held}
        assert sum(cell.memory_bytes for cell in placement.cells) == GIB * len(held)
        for cell in placement.cells:
            assert {core_of[number].numa_node for number in cell.processors} == {cell.numa_node}
    for (one, first), (other, second) in combinations(placed, 2):
        if one.isdisjoint(other):
            used = [{core_of[number] for number in placement.processors()} for placement in (first, second)]
            assert used[0].isdisjoint(used[1]), "not even two threads of one core"


@given(host=divided())
def test_guests_are_pinned_where_the_cores_suffice_and_nowhere_else(host: Any) -> None:
    cores, slot_nodes, each, reserved = host
    threads = len(cores[0].threads)
    kept = set(reserved or ())
    if reserved is None:
        kept = {
            min(core.threads[0] for core in cores if core.numa_node == node) for node in {c.numa_node for c in cores}
        }
    free = [core.numa_node for core in cores if kept.isdisjoint(core.threads)]
    needed = -(-each // threads)
    suffices = all(free.count(node) >= slot_nodes.count(node) * needed for node in slot_nodes)
    pinning = pin(cores, slot_nodes, each, reserved)
    assert (pinning.blocks is not None) is suffices
    assert bool(pinning.why) is not suffices


def _placed(pinning: Pinning, slots: list[int]) -> GuestPlacement:
    found = pinning.place(slots, GIB)
    assert found is not None
    return found


def test_a_host_with_too_few_cores_pins_no_guest_and_keeps_its_reserved_processors() -> None:
    cores = [Core(0, (0,)), Core(0, (1,))]
    assert pin(cores, [0], 2, None) == Pinning(
        None, "NUMA node 0 has 1 cores for guests, too few for 1 slots with 2 processors each"
    )
    pinning = pin(cores, [0], 2, [0])
    assert (pinning.place([0], GIB), pinning.shared) == (None, (1,))
    assert "BERTH_LIBVIRT_SLOTS" in pin(cores, [], 1, None).why


@given(st.sets(st.integers(0, 300)))
def test_lists_of_processors_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert set(parse_processors(listed_processors(numbers))) == numbers


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "0-99999", "-1"])
def test_what_is_no_list_of_processors_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="processors"):
        parse_processors(text)


def test_a_host_is_read_by_its_files(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=2, cores=3, threads=2)
    found = read_host_slots(tmp_path, 4)
    assert [(core.numa_node, core.threads) for core in found.cores] == [
        (0, (0, 6)), (0, (1, 7)), (0, (2, 8)), (1, (3, 9)), (1, (4, 10)), (1, (5, 11)),
    ]  # fmt: skip
    assert found.slot_nodes == (0, 0, 1, 1) == spread(4, [0, 1])
    assert read_host_slots(tmp_path, 0).slot_nodes == ()
    for address, node in (("0000:89:00.0", 1), ("0000:0f:00.0", 0), ("0000:c0:00.0", 1)):
        hosts.gpu(tmp_path, address, node)
    found = read_host_slots(tmp_path, 4)
    assert found.addresses == ("0000:0f:00.0", "0000:89:00.0", "0000:c0:00.0")
    assert found.slot_nodes == (0, 1, 1), "each slot has the node of its GPU"


def test_a_gpu_that_falls_off_the_bus_moves_no_other_slot(tmp_path: Path) -> None:
    file = tmp_path / SLOTS_FILE
    hosts.processors(tmp_path, nodes=2, cores=2)
    assert remembered_gpus(file, tmp_path) == SlotGpus(gpus=[])
    assert not file.exists()
    hosts.gpu(tmp_path, "0000:0f:00.0", 0)
    hosts.gpu(tmp_path, "0000:89:00.0", 1)
    first = remembered_gpus(file, tmp_path)
    (tmp_path / "sys/bus/pci/devices/0000:0f:00.0/vendor").write_text("0xffff\n")
    assert remembered_gpus(file, tmp_path, are_passed=True) == first == read_slots_file(file)
    assert first.gpus[1] == SlotGpu(address="0000:89:00.0", numa_node=1)
    hosts.gpu(tmp_path, "0000:c0:00.0", 1)
    (tmp_path / "sys/bus/pci/devices/0000:0f:00.0/vendor").write_text("0x10de\n")
    assert remembered_gpus(file, tmp_path) == first, "of no slot, and guests get no GPU"
    with pytest.raises(OSError, match=r"0000:c0:00.0 is not in .*slots.json, so it is of no slot"):
        remembered_gpus(file, tmp_path, are_passed=True)
    file.write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        remembered_gpus(file, tmp_path)


def test_a_guest_of_earlier_settings_keeps_its_processors_from_a_new_one(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=1, cores=8)
    now, before = (Placing(PlacementSettings(each, GIB, slots=2, reserved=(), root=tmp_path)) for each in (3, 4))
    for placing in (now, before):
        placing.look(SlotGpus(gpus=[]))
    _, old = guest(allocation_id=uuid.UUID(int=5), **before.place([0], []))
    with pytest.raises(
        OSError, match=r"processor 3 is pinned to the guest of allocation 0.*5, which began under other"
    ):
        now.place([1], [old])
    placement = now.place([1], [])["placement"]
    assert placement is not None
    assert placement.processors() == [3, 4, 5]
    assert now.place([1, 2], [old])["placement"] is None, "a slot that the host has no processors for"


def placed(slots: list[int], **changes: Any) -> ET.Element:
    """The definition of a guest on a host with two NUMA nodes of two slots each."""
    return defined(**placed_changes(slots), **changes)


def test_a_slice_of_one_half_is_pinned_and_its_memory_bound_there() -> None:
    domain = placed([3])
    assert [pin.attrib for pin in domain.iter("vcpupin")] == [
        {"vcpu": "0", "cpuset": "11"}, {"vcpu": "1", "cpuset": "12"},
    ]  # fmt: skip
    assert [pin.attrib for pin in domain.iter("emulatorpin")] == [{"cpuset": "11-12"}]
    assert [one.attrib for one in domain.iterfind("numatune/*")] == [{"mode": "strict", "nodeset": "1"}]
    assert domain.find("cpu/numa") is None


def test_a_slice_of_both_halves_has_a_cell_of_each() -> None:
    domain = placed([2, 0, 3])
    assert [one.attrib for one in domain.iterfind("cpu/numa/cell")] == [
        {"id": "0", "cpus": "0-1", "memory": str(GIB), "unit": "bytes"},
        {"id": "1", "cpus": "2-5", "memory": str(2 * GIB), "unit": "bytes"},
    ]  # fmt: skip
    assert [pin.get("cpuset") for pin in domain.iter("vcpupin")] == ["1", "2", "9", "10", "11", "12"]
    assert [one.attrib for one in domain.iterfind("numatune/memnode")] == [
        {"cellid": "0", "mode": "strict", "nodeset": "0"}, {"cellid": "1", "mode": "strict", "nodeset": "1"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "known", "why"),
    [
        ([0, 1, 1], {0: GIB, 1: 2 * GIB}, ""),
        ([0, 1, 1], {0: GIB, 1: 2 * GIB - 1}, "NUMA node 1 has 2147483647 bytes of memory, too few for 2 slots with"),
        ([1], {0: 0, 1: GIB}, ""),
        ([0], {1: GIB}, "how much memory NUMA node 0 has is not known"),
    ],
    ids=["enough", "a byte too few", "a node without slots", "not known"],
)
def test_memory_is_bound_where_each_numa_node_has_enough(slots: list[int], known: dict[int, int], why: str) -> None:
    found = why_unbound(slots, known, GIB)
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_a_guest_is_pinned_and_not_bound_where_a_numa_node_has_too_little(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=2, cores=4)  # with a GiB of memory each
    bound = []
    for each in (GIB // 2, GIB):
        placing = Placing(PlacementSettings(1, each, slots=4, root=tmp_path))
        placing.look(SlotGpus(gpus=[]))
        placement = placing.place([0, 2], [])["placement"]
        assert placement is not None
        bound.append(placement.is_bound)
    assert bound == [True, False]


def test_a_host_with_one_numa_node_binds_no_memory() -> None:
    placement = pin([Core(0, (0,)), Core(0, (1,))], [0], 1, None).place([0], GIB)
    domain = defined(placement=placement, processors=1)
    assert [pin.get("cpuset") for pin in domain.iter("vcpupin")] == ["1"]
    assert domain.find("numatune") is None


def test_a_guest_that_is_not_pinned_leaves_the_reserved_processors_alone() -> None:
    vcpu = defined(shared_processors=[2, 3, 5]).find("vcpu")
    assert vcpu is not None
    assert vcpu.get("cpuset") == "2-3,5"
    plain = defined()
    assert [plain.find(name) for name in ("cputune", "numatune", "memoryBacking", "cpu/numa")] == [None] * 4
