"""What follows from a topology, and what counts as drift: only what is known to differ."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Gap, NumaNode, Topology
from orchestrator.nodes.topology.rules import (
    DriftCause,
    Profile,
    differences,
    drifted_slots,
    equals_profile,
    misfit,
)
from tests.allocations.seeding import SLOTS
from tests.discovery.topologies import MEMORY_BYTES, gpu, port, topology
from tests.discovery.trees import GPU_ADDRESSES, NIC_ADDRESSES

EVERY = tuple(range(SLOTS))


def with_gpu(index: int, **changes: Any) -> Topology:
    """The machine with one GPU changed."""
    return topology(gpus=[gpu(i, **changes) if i == index else gpu(i) for i in range(SLOTS)])


def found(now: Topology, approved: Topology | None = None) -> list[tuple[DriftCause, str, tuple[int, ...]]]:
    return [(d.cause, d.subject, d.slots) for d in differences(approved or topology(), now)]


def test_slots_are_gpus_by_half_and_address() -> None:
    layout = layout_of(topology())
    assert layout is not None
    assert (list(layout.addresses), layout.half_slots, layout.gpu_model) == (GPU_ADDRESSES, 4, gpu(0).model)


def test_a_gpu_of_the_second_socket_with_a_low_address_is_a_later_slot() -> None:
    gpus = [gpu(0, numa_node=1), *(gpu(index, numa_node=0) for index in (1, 2, 3))]
    layout = layout_of(topology(gpus=gpus))
    assert layout is not None
    assert layout.addresses == (*GPU_ADDRESSES[1:4], GPU_ADDRESSES[0])
    assert layout.half_slots == 3


def test_without_two_halves_slots_follow_the_addresses() -> None:
    for gpus in ([gpu(i, numa_node=None) for i in range(4)], [gpu(i, numa_node=0) for i in range(4)]):
        layout = layout_of(topology(gpus=gpus))
        assert layout is not None
        assert (list(layout.addresses), layout.half_slots) == (GPU_ADDRESSES[:4], None)


def test_numa_nodes_without_processors_are_no_half() -> None:
    nodes = [NumaNode(number=n, processors="0-3") for n in range(2)] + [NumaNode(number=n) for n in range(2, 10)]
    layout = layout_of(topology(numa_nodes=nodes))
    assert layout is not None
    assert layout.half_slots == 4


@pytest.mark.parametrize(
    ("profile", "equal"),
    [
        (Profile("H200", 8, 4), True), (Profile("h200-141GB", 8, 4), True), (Profile("NVIDIA H200", 8, 4), True),
        (Profile("H100", 8, 4), False), (Profile("H200", 8, 3), False), (Profile("H200", 4, 4), False),
        (Profile("H20", 8, 4), False), (Profile("---", 8, 4), False),
    ],
    ids=["model", "memory", "vendor", "other", "half", "count", "part", "none"],
)  # fmt: skip
def test_only_the_declared_profile_is_equal(profile: Profile, equal: bool) -> None:
    assert equals_profile(topology(), profile) is equal


def test_an_unknown_model_equals_no_profile() -> None:
    assert not equals_profile(with_gpu(3, model=None), Profile("H200", 8, 4))
    assert not equals_profile(topology(gpus=None), Profile("H200", 8, 4))
    assert not equals_profile(with_gpu(3, model="NVIDIA H100"), Profile("H200", 8, 4))


def test_a_topology_fits_its_slots() -> None:
    assert misfit(topology(), 8) is None
    assert misfit(topology(), 7) == "it has 8 GPUs, and the node has 7 slots"
    assert misfit(topology(gpus=None), 8) == "its GPUs could not be read"
    assert misfit(with_gpu(2, lost=True), 8) == f"the GPU at {GPU_ADDRESSES[2]} is lost"


def test_the_same_machine_differs_in_nothing() -> None:
    assert found(topology()) == []


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"lost": True}, DriftCause.GPU_LOST), ({"model": "NVIDIA H100"}, DriftCause.GPU_CHANGED),
        ({"pci_id": "10de:2330", "model": None}, DriftCause.GPU_CHANGED), ({"serial": "9"}, DriftCause.GPU_REPLACED),
        ({"serial": None, "uuid": "GPU-9"}, DriftCause.GPU_REPLACED), ({"mig_enabled": True}, DriftCause.MIG_CHANGED),
        ({"nvlinks_up": 17}, DriftCause.NVLINK_DOWN),
    ],
    ids=["lost", "model", "pci-id", "serial", "uuid", "mig", "nvlink"],
)  # fmt: skip
def test_a_changed_gpu_takes_its_slot(changes: dict[str, Any], cause: DriftCause) -> None:
    assert found(with_gpu(5, **changes)) == [(cause, GPU_ADDRESSES[5], (5,))]


def test_a_missing_gpu_takes_its_slot() -> None:
    now = topology(gpus=[gpu(i) for i in range(SLOTS) if i != 6])
    assert found(now) == [(DriftCause.GPU_MISSING, GPU_ADDRESSES[6], (6,))]


def test_a_moved_gpu_takes_its_slot_also_when_two_change_places() -> None:
    swapped = [gpu(0, serial="1651", uuid="GPU-1"), gpu(1, serial="1650", uuid="GPU-0"), *(gpu(i) for i in range(2, 8))]
    assert found(topology(gpus=swapped)) == [
        (DriftCause.GPU_MOVED, GPU_ADDRESSES[0], (0,)), (DriftCause.GPU_MOVED, GPU_ADDRESSES[1], (1,)),
    ]  # fmt: skip
    moved = [gpu(0, address="0000:ee:00.0"), *(gpu(i) for i in range(1, 8))]
    assert found(topology(gpus=moved)) == [
        (DriftCause.GPU_MOVED, GPU_ADDRESSES[0], (0,)), (DriftCause.GPU_ADDED, "0000:ee:00.0", ()),
    ]  # fmt: skip


def test_a_link_down_takes_every_slot_of_the_node() -> None:
    assert found(topology(nics=[port(0), port(1, link_up=False)])) == [(DriftCause.PORT_DOWN, "ens1", EVERY)]
    assert found(topology(nics=[port(0)])) == [(DriftCause.PORT_MISSING, "ens1", EVERY)]


def test_a_port_that_was_not_in_use_or_changed_its_name_is_no_drift() -> None:
    unused = topology(nics=[port(0), port(1, link_up=False)])
    assert found(topology(nics=[port(0)]), unused) == []
    assert found(topology(nics=[port(0), port(1, name="eth1")])) == []


def test_a_port_of_another_driver_is_no_drift() -> None:
    now = topology(nics=[port(0)])
    held = [*(now.pci_devices or ()), *[d for d in topology().pci_devices or () if d.address == NIC_ADDRESSES[1]]]
    assert found(now.model_copy(update={"pci_devices": held})) == []


def test_less_memory_takes_every_slot_but_not_what_a_kernel_reserves() -> None:
    assert found(topology(memory_bytes=MEMORY_BYTES * 7 // 8)) == [(DriftCause.MEMORY_MISSING, "memory", EVERY)]
    assert found(topology(memory_bytes=MEMORY_BYTES - 2**30)) == []


@pytest.mark.parametrize(
    "now",
    [
        topology(gpus=None), topology(nics=None), topology(memory_bytes=None),
        topology(gpus=[gpu(i, model=None, uuid=None, serial=None, mig_enabled=None, nvlinks_up=None) for i in range(8)]),
        topology(nics=[port(0, link_up=None), port(1, link_up=None)]),
        topology(gpus=[gpu(i) for i in range(7)], gaps=[Gap(subject=f"devices/{GPU_ADDRESSES[7]}", reason="EIO")]),
        topology(gpus=[gpu(i) for i in range(7)], gaps=[Gap(subject="gaps", reason="more were left out")]),
    ],
    ids=["gpus", "ports", "memory", "guests", "links", "unread", "more"],
)  # fmt: skip
def test_what_is_unknown_is_no_drift(now: Topology) -> None:
    assert drifted_slots(differences(topology(), now)) == []
