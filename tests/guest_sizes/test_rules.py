"""What slots have by a topology, and which of them has less than a SKU states."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.wire.topology import NumaNode, Processors
from orchestrator.catalogue.rules import GuestSize, Lack, SlotRoom, lack_of, least, rooms_of
from tests.allocations.seeding import SLOTS
from tests.discovery.topologies import gpu, topology

GIB = 2**30


def node(number: int, processors: str | None = "0-31,64-95", memory_bytes: int | None = 1024 * GIB) -> NumaNode:
    return NumaNode(number=number, processors=processors, memory_bytes=memory_bytes)


def test_a_slot_has_its_part_of_the_numa_node_of_its_gpu() -> None:
    gpus = [gpu(index, numa_node=int(index > 1)) for index in range(SLOTS)]
    rooms = rooms_of(topology(gpus=gpus, numa_nodes=[node(0), node(1)]))
    assert rooms[:2] == [SlotRoom(0, 32, 512 * GIB), SlotRoom(1, 32, 512 * GIB)]
    assert rooms[2:] == [SlotRoom(slot, 10, 1024 * GIB // 6) for slot in range(2, SLOTS)]
    assert least(rooms) == (10, 1024 * GIB // 6)


def test_a_slot_of_a_host_whose_gpus_have_no_numa_node_has_its_part_of_the_host() -> None:
    gpus = [gpu(index, numa_node=None if index == 3 else 0) for index in range(SLOTS)]
    processors = Processors(architecture="x86_64", threads=100)
    found = topology(gpus=gpus, numa_nodes=[node(0)], processors=processors, memory_bytes=800 * GIB)
    assert rooms_of(found) == [SlotRoom(slot, 12, 100 * GIB) for slot in range(SLOTS)]


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": None},
        {"gpus": []},
        {"numa_nodes": [node(0, None, None), node(1, "all", None)]},
        {"numa_nodes": None, "memory_bytes": None},
    ],
    ids=["no gpus read", "no gpus", "nodes not read", "nothing read"],
)
def test_what_is_not_known_refuses_nothing(changes: dict[str, Any]) -> None:
    rooms = rooms_of(topology(**changes))
    assert least(rooms) == (None, None)
    assert lack_of(rooms, GuestSize(vcpus=256, memory_bytes=2**46)) is None


def test_the_first_slot_with_too_little_is_named() -> None:
    rooms = [SlotRoom(0, 16, 64 * GIB), SlotRoom(1, 16, 32 * GIB), SlotRoom(2, 8, 32 * GIB)]
    assert lack_of(rooms, GuestSize(vcpus=8, memory_bytes=32 * GIB)) is None
    assert lack_of(rooms, GuestSize(vcpus=9)) == Lack(2, "processors", 8, 9)
    assert lack_of(rooms, GuestSize(vcpus=9, memory_bytes=64 * GIB)) == Lack(1, "bytes of memory", 32 * GIB, 64 * GIB)
    assert lack_of(rooms, GuestSize()) is None
    assert Lack(2, "processors", 8, 9).sentence == "slot 2 has 8 processors by the topology, and 9 are stated"
