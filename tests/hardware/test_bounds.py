"""What a lying agent can write is bounded, and what serial numbers look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from node_agent.wire.topology import Disk, Gap, Gpu, Text
from orchestrator.nodes.hardware.queries import list_hardware
from orchestrator.nodes.hardware.rules import SERIAL, Kind, parts_of, serial_of
from orchestrator.nodes.store.hardware import Filter
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import SLOTS, connect, seed
from tests.discovery.probes.reports import gpu as gpu_health
from tests.discovery.probes.reports import health, probe
from tests.discovery.topologies import gpu, topology
from tests.discovery.trees import GPU_ADDRESSES
from tests.hardware.reporting import machine, serials, take, with_gpu

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=64)


def drives(names: Sequence[str]) -> list[Disk]:
    """Disks with these serial numbers."""
    return [Disk(name=f"sd{number}", serial=serial) for number, serial in enumerate(names)]


def test_a_node_writes_at_most_512_entries_in_30_days(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        for round_ in range(9):
            found = machine(serials("A"), [f"LIE-{round_}-{number}" for number in range(40)])
            await take(context, database_url, node, found)

    run_with(database_url, way)
    count = rows_of(database_url, "select count(*) from hardware_history")[0][0]
    assert 512 - 80 < count <= 512, "a report is taken whole or not at all"
    assert rows_of(database_url, "select count(distinct serial) <= 300 from hardware_history") == [(True,)]
    # What is there now is that of the last report that was taken.
    assert rows_of(database_url, "select count(*) from hardware_places where missing_since is null") == [(48,)]
    with connect(database_url) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("update hardware_history set happened_at = happened_at - interval '31 days'")

    async def later(context: Context) -> None:
        await take(context, database_url, node, machine(serials("A"), ["LATE-1"]))

    run_with(database_url, later)
    assert rows_of(database_url, "select happened from hardware_history where serial = 'LATE-1'") == [("seen",)]


def test_what_a_node_no_longer_has_is_bounded(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        for round_ in range(8):
            with connect(database_url) as connection:
                connection.execute("set session_replication_role = replica")
                connection.execute("update hardware_history set happened_at = happened_at - interval '31 days'")
            await take(
                context, database_url, node, machine(serials("A"), [f"LIE-{round_}-{number}" for number in range(40)])
            )

    run_with(database_url, way)
    assert rows_of(database_url, "select count(*) from hardware_places") == [(256,)]
    kept = rows_of(database_url, "select distinct left(serial, 5) from hardware_places order by 1 desc limit 2")
    assert kept == [("LIE-7",), ("LIE-6",)], "the latest stay"


def test_faults_that_come_and_go_are_bounded(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await take(context, database_url, node, machine(serials("A")))
        with connect(database_url) as connection:
            connection.execute(
                "insert into hardware_history (serial, kind, happened, node_id, slots, actor, detail)"
                " select 'A-0000', 'gpu', 'fault_found', %s, '{0}', 'worker:probe', n::text from generate_series(1, 511) n",
                (node,),
            )
        await probe(
            context, database_url, node, health(gpu_health(1, ecc_uncorrected=7), gpu_health(2, ecc_uncorrected=7))
        )

    run_with(database_url, way)
    assert rows_of(
        database_url, "select count(*) from hardware_history where actor = 'worker:probe' and happened = 'fault_found'"
    ) == [(512,)]
    quarantined = rows_of(
        database_url, "select serial from hardware_history where happened = 'quarantined' order by serial"
    )
    assert quarantined == [("A-0001",), ("A-0002",)], "a quarantine is always noted"


def test_the_list_has_filters(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    first, second = (node.id for node in seeded.nodes)
    both = with_gpu(machine(serials("B"), ["DISK-1"]), 0, serial="A-0000", uuid="GPU-A-0000")

    async def way(context: Context) -> list[int]:
        await take(context, database_url, first, machine(serials("A"), ["DISK-2"]))
        await take(context, database_url, second, both)
        await take(context, database_url, second, both.model_copy(update={"disks": []}))
        wanted = [
            Filter(), Filter(first), Filter(kind="disk"), Filter(first, "disk"), Filter(contested=True), Filter(missing=True),
        ]  # fmt: skip
        found = [await list_hardware(context.database, one, after=("", first), limit=100) for one in wanted]
        return [len(one) for one in found]

    assert run_with(database_url, way) == [18, 9, 2, 1, 2, 1]


@given(TEXTS)
def test_every_serial_number_of_an_agent_is_spelt_or_unknown(text: str) -> None:
    spelt = serial_of(text)
    assert spelt is None or (TypeAdapter(Text).validate_python(spelt) and serial_of(spelt) == spelt)


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("1654923000123", "1654923000123"), (" S3Z8NB0K ", "S3Z8NB0K"), ("WD-WCC/7 K", "WD-WCC_7_K"), ("QM00001", "QM00001"),
        (None, None), ("", None), ("   ", None), ("0000000000", None), ("N/A", None), ("None", None), ("Unknown", None),
        ("Default string", None), ("123", None), ("../../etc", None), ("/repairs", None),
    ],
)  # fmt: skip
def test_serial_numbers_are_spelt_in_one_way(text: str | None, spelt: str | None) -> None:
    assert serial_of(text) == spelt


def parts(**changes: Any) -> dict[str, tuple[Any, ...]]:
    """Kind, slots and positions of each piece of a machine."""
    found = parts_of(topology(**changes), None, SLOTS)
    return {one.serial: (one.kind, one.slots, one.positions) for one in found.parts}


def test_boards_of_several_gpus_and_disks_of_several_paths_are_one_piece() -> None:
    gpus: list[Gpu] = [gpu(index, serial=f"BOARD-{index // 4}") for index in range(SLOTS)]
    found = parts(gpus=gpus, disks=drives(["DISK-1", "DISK-1", "BOARD-0"]))
    assert found["BOARD-1"] == (Kind.GPU, (4, 5, 6, 7), tuple(GPU_ADDRESSES[4:]))
    assert found["DISK-1"] == (Kind.DISK, (), ("sd0", "sd1"))
    assert found["BOARD-0"][0] is Kind.GPU, "a disk with the serial number of a GPU is left out"


def test_slots_follow_from_the_approved_topology() -> None:
    approved = machine(serials("A"))
    seven = machine(serials("A")).model_copy(update={"gpus": list(approved.gpus or ())[1:]})
    assert {one.serial: one.slots for one in parts_of(seven, approved, SLOTS).parts}["A-0001"] == (1,)
    assert all(one.slots == () for one in parts_of(seven, None, SLOTS).parts), "not as many GPUs as slots"


def test_nothing_is_missing_of_what_could_not_be_read() -> None:
    approved = machine(serials("A"), ["DISK-1"])
    gap = [Gap(subject=f"pci {GPU_ADDRESSES[3]}", reason="unreadable")]
    assert parts_of(approved.model_copy(update={"gaps": gap}), approved, SLOTS).unread == (GPU_ADDRESSES[3],)
    for subject, known in (("gpus", (Kind.DISK,)), ("disks", (Kind.GPU,)), ("gaps", ())):
        cut = approved.model_copy(update={"gaps": [Gap(subject=subject, reason="more were left out")]})
        assert parts_of(cut, approved, SLOTS).known == known
    assert parts_of(approved.model_copy(update={"gpus": None}), approved, SLOTS).known == (Kind.DISK,)
    nameless = parts_of(machine([None, *serials("A")[1:]]), approved, SLOTS)
    assert nameless.unread == (GPU_ADDRESSES[0],)
    assert SERIAL.startswith("^")
