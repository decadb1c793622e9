"""A guest has exactly the vCPUs and the memory that its SKU states, within the processors and NUMA nodes of its slots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.drivers.contract import DriverFailure, ProvisionOrder, Verb, VerbOrder
from node_agent.drivers.images import ImageBounds
from node_agent.drivers.libvirt.host_slots import SlotGpus
from node_agent.drivers.libvirt.placement import Core, GuestPlacement, pin
from node_agent.drivers.libvirt.placing import PlacementSettings, Placing
from node_agent.drivers.libvirt.records import GuestRecord
from node_agent.drivers.libvirt.sizing import SizeUnavailable, SlotShare, fit, size_of
from node_agent.protocol import FailureCode, ProvisionParameters, RebuildParameters
from node_agent.wire.guests import MEMORY_STEP_BYTES, GuestSize
from tests.libvirt_driver.definitions import defined, guest
from tests.libvirt_driver.placement import hosts
from tests.libvirt_driver.placement.hosts import GIB

MIB = 2**20
THREADS = 2


@st.composite
def wholes(draw: st.DrawFn) -> tuple[SlotShare, int, GuestPlacement]:
    """The share of a slot, a number of slots, and the placement of a guest that has all of it; a core has two threads."""
    kib = draw(st.sampled_from([0, 2048, 1_048_576]))
    step = max(MIB, kib * 1024)
    share = SlotShare(THREADS * draw(st.integers(1, 8)), step * draw(st.integers(1, 64)), kib)
    nodes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    cores = [
        Core(node, (node * 100 + core, 1000 + node * 100 + core))
        for node in range(4) for core in range(len(nodes) * share.processors)
    ]  # fmt: skip
    whole = pin(cores, nodes, share.processors, []).place(list(range(len(nodes))), share.memory_bytes)
    assert whole is not None
    return share, len(nodes), whole


@given(host=wholes(), data=st.data())
def test_a_placement_has_exactly_the_size_and_nothing_that_the_slots_do_not_have(
    host: Any, data: st.DataObject
) -> None:
    share, slots, whole = host
    step, nodes = share.memory_step_bytes, len(whole.cells)
    size = size_of(
        GuestSize(
            vcpus=data.draw(st.integers(nodes, share.processors * slots)),
            memory_bytes=step * data.draw(st.integers(nodes, share.memory_bytes * slots // step)),
        ),
        slots,
        share,
    )
    fitted = fit(whole, size, step)
    assert (len(fitted.processors()), sum(cell.memory_bytes for cell in fitted.cells)) == (
        size.processors, size.memory_bytes,
    )  # fmt: skip
    assert fitted.is_bound == whole.is_bound
    for cell, held in zip(fitted.cells, whole.cells, strict=True):
        assert cell.numa_node == held.numa_node
        assert cell.processors == held.processors[: len(cell.processors)], "the first ones, core by core"
        assert len(cell.processors) > 0
        assert 0 < cell.memory_bytes <= held.memory_bytes
        assert cell.memory_bytes % step == 0, "whole huge pages"
        cut = {number % 1000 for number in cell.processors}
        assert len(cut) == -(-len(cell.processors) // THREADS), "threads of a core stay together"
        for stated, part, most in (
            (size.processors, len(cell.processors), len(held.processors)),
            (size.memory_bytes // step, cell.memory_bytes // step, held.memory_bytes // step),
        ):
            every = slots * (share.processors if most == len(held.processors) else share.memory_bytes // step)
            assert part == 1 or abs(part - stated * most / every) < nodes, "in proportion to the slots"


@given(host=wholes())
def test_what_is_not_stated_is_the_whole_share_of_the_slots(host: Any) -> None:
    share, slots, whole = host
    assert fit(whole, size_of(None, slots, share), share.memory_step_bytes) == whole
    few = size_of(GuestSize(vcpus=1), slots, share)
    assert (few.processors, few.memory_bytes) == (1, share.memory_bytes * slots)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"vcpus": 9}, "states 9 vCPUs, and 2 slots have 8 processors of this node .BERTH_GUEST_PROCESSORS=4"),
        ({"memory_bytes": 8 * GIB + MIB}, "2 slots have 8589934592 of this node .BERTH_GUEST_MEMORY_BYTES=4294967296"),
        ({"memory_bytes": GIB + MIB}, "no multiple of this node's huge pages of 2048 KiB"),
    ],
    ids=["vcpus", "memory", "pages"],
)
def test_more_than_the_slots_have_is_refused(stated: dict[str, int], words: str) -> None:
    share = SlotShare(4, 4 * GIB, 2048)
    with pytest.raises(SizeUnavailable, match=words):
        size_of(GuestSize(**stated), 2, share)
    assert size_of(GuestSize(vcpus=8, memory_bytes=8 * GIB), 2, share) == size_of(None, 2, share)


def test_each_numa_node_of_the_slots_has_a_vcpu_or_the_guest_is_refused() -> None:
    share = SlotShare(2, GIB)
    whole = pin([Core(number // 2, (number,)) for number in range(8)], [0, 1, 2], 2, []).place([0, 1, 2], GIB)
    assert whole is not None
    fitted = fit(whole, size_of(GuestSize(vcpus=3), 3, share), MIB)
    assert [cell.processors for cell in fitted.cells] == [[0], [2], [4]]
    with pytest.raises(SizeUnavailable, match="3 NUMA nodes: each must have at least one vCPU and 1048576 bytes"):
        fit(whole, size_of(GuestSize(vcpus=2), 3, share), MIB)
    with pytest.raises(SizeUnavailable, match="3 NUMA nodes"):
        fit(whole, size_of(GuestSize(memory_bytes=2 * MIB), 3, share), MIB)


def test_uneven_slots_give_in_proportion() -> None:
    cores = [Core(number // 16, (number,)) for number in range(32)]
    whole = pin(cores, [0, 0, 0, 1], 4, []).place([0, 1, 2, 3], 4 * GIB)
    assert whole is not None
    fitted = fit(whole, size_of(GuestSize(vcpus=6, memory_bytes=6 * GIB), 4, SlotShare(4, 4 * GIB)), MIB)
    assert [(len(cell.processors), cell.memory_bytes) for cell in fitted.cells] == [(5, 4608 * MIB), (1, 1536 * MIB)]


def test_the_definition_has_the_stated_size(tmp_path: Path) -> None:
    hosts.processors(tmp_path, nodes=2, cores=8, threads=2)
    hosts.huge_pages(tmp_path, reserved=400, free=400)
    for node, free in ((0, 192), (1, 191)):
        hosts.huge_pages(tmp_path, reserved=192, free=free, node=node)
    placing = Placing(PlacementSettings(4, 256 * MIB, slots=4, huge_page_kib=2048, root=tmp_path))
    placing.look(SlotGpus(gpus=[]))
    given = placing.place([0, 1, 2, 3], [], GuestSize(vcpus=10, memory_bytes=768 * MIB))
    domain = defined(**given)
    assert (domain.findtext("vcpu"), domain.findtext("memory")) == ("10", str(768 * MIB))
    pins = {pin.get("vcpu"): pin.get("cpuset") for pin in domain.iterfind("cputune/vcpupin")}
    # The first core of each NUMA node is the host's; threads of core 1 are the processors 1 and 17.
    assert list(pins.values()) == ["1", "17", "2", "18", "3", "9", "25", "10", "26", "11"]
    assert [cell.attrib for cell in domain.iterfind("cpu/numa/cell")] == [
        {"id": "0", "cpus": "0-4", "memory": str(384 * MIB), "unit": "bytes"},
        {"id": "1", "cpus": "5-9", "memory": str(384 * MIB), "unit": "bytes"},
    ]
    _, record = guest(**given)
    with pytest.raises(Exception, match="NUMA node 1 has 191 free huge pages of 2048 KiB, and the guest needs 192"):
        placing.require_memory(record)
    hosts.huge_pages(tmp_path, reserved=192, free=192, node=1)
    placing.require_memory(record)


def test_a_guest_that_is_not_pinned_has_the_stated_size_too(tmp_path: Path) -> None:
    placing = Placing(PlacementSettings(4, 256 * MIB, root=tmp_path))
    placing.look(SlotGpus(gpus=[]))
    domain = defined(**placing.place([0], [], GuestSize(vcpus=3, memory_bytes=64 * MIB)))
    assert (domain.findtext("vcpu"), domain.findtext("memory")) == ("3", str(64 * MIB))
    assert domain.find("cputune") is None
    with pytest.raises(SizeUnavailable, match="states 5 vCPUs, and 1 slots have 4"):
        placing.place([0], [], GuestSize(vcpus=5))


def test_a_record_of_the_version_before_means_the_guest_that_runs(tmp_path: Path) -> None:
    former = {
        "allocation_id": str(uuid4()), "fence": 7, "slots": [0, 1], "state": "running", "port": 20_022,
        "image_sha256": "0" * 64, "image_format": "qcow2", "memory_bytes": 2 * GIB, "processors": 4, "disk_bytes": GIB,
        "placement": hosts.placed_changes([0, 1])["placement"].model_dump(mode="json"), "shared_processors": [],
        "huge_page_kib": 2048,
    }  # fmt: skip
    record = GuestRecord.model_validate_json(json.dumps(former))
    changes = {name: value for name, value in record.model_dump().items() if name in former}
    domain = defined(**changes)
    assert (domain.findtext("vcpu"), domain.findtext("memory")) == ("4", str(2 * GIB))
    assert set(former) <= set(GuestRecord.model_fields)
    assert all(name in record.model_dump(mode="json") for name in former), "and an older agent reads a sized one"


def _driver(directory: Path) -> Any:
    from node_agent.drivers.libvirt.driver import LibvirtDriver
    from node_agent.drivers.libvirt.node import LibvirtLimits

    limits = LibvirtLimits(
        "127.0.0.1", 20_000, 20_010, 1.0, ImageBounds(GIB, 4, GIB), 60.0, GIB, 64_500,
        PlacementSettings(2, GIB, root=directory / "host"),
    )  # fmt: skip
    return LibvirtDriver(directory / "node", "test:///default", limits)


PARAMETERS = {
    "slots": [0], "gpu_model": "H100", "ssh_public_keys": ["ssh-ed25519 AAAA"], "hostname": "guest",
    "image": {"name": "one", "url": "file:///nowhere", "sha256": "0" * 64},
}  # fmt: skip


@pytest.mark.hardware
def test_a_driver_refuses_a_size_before_anything_is_written_and_before_a_rebuild_ends_the_guest(tmp_path: Path) -> None:
    pytest.importorskip("libvirt")
    driver = _driver(tmp_path)
    large = ProvisionParameters.model_validate({**PARAMETERS, "guest_size": {"vcpus": 3}})
    with pytest.raises(DriverFailure, match="states 3 vCPUs, and 1 slots have 2") as caught:
        driver.provision(ProvisionOrder(uuid4(), 7, large))
    assert caught.value.code is FailureCode.GUEST_SIZE_UNAVAILABLE
    directory, record = guest(driver._node.allocations, state="running", slots=[0])
    directory.path.mkdir()
    directory.save(record)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(DriverFailure, match="states 3 vCPUs") as caught:
        driver.verb(VerbOrder(record.allocation_id, 8, Verb.REBUILD, large))
    assert caught.value.code is FailureCode.GUEST_SIZE_UNAVAILABLE
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert directory.load() == record
    small = ProvisionParameters.model_validate({**PARAMETERS, "guest_size": {"vcpus": 1, "memory_bytes": 64 * MIB}})
    assert driver.provision(ProvisionOrder(uuid4(), 7, small)).phases[0].name == "lease"


def test_the_size_travels_only_where_it_is_stated() -> None:
    plain = ProvisionParameters.model_validate(PARAMETERS)
    assert "guest_size" not in plain.model_dump(mode="json")
    stated = ProvisionParameters.model_validate({**PARAMETERS, "guest_size": {"vcpus": 3}})
    assert stated.model_dump(mode="json")["guest_size"] == {"vcpus": 3, "memory_bytes": None}
    assert RebuildParameters(**dict(stated), graceful_seconds=1.0).guest_size == GuestSize(vcpus=3)
    for wrong in (
        {},
        {"vcpus": 0},
        {"vcpus": True},
        {"memory_bytes": MEMORY_STEP_BYTES + 1},
        {"memory_bytes": 0},
        {"cpus": 1},
    ):
        with pytest.raises(ValidationError):
            GuestSize.model_validate(wrong)
