"""What discoveries, probes, quarantines and tenants say of a piece of hardware is its history, at every node."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.commands.topologies import approve_topology, take_discovery
from orchestrator.nodes.hardware.queries import count_hardware, find_hardware, list_history
from orchestrator.operations.execution import Context
from tests.allocations.driving import ADMIN, clean_up, provision, release, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect, create_allocation, seed
from tests.discovery.probes.reports import disk, gpu, health, probe
from tests.faults.reporting import send_report
from tests.hardware.reporting import (
    answer_discovery,
    close,
    history_of,
    machine,
    places,
    repair,
    serials,
    take,
    with_gpu,
    without,
)
from tests.nodes.answers import body_of

A, B = "gpu-slice-0", "gpu-slice-1"


async def _quarantine(context: Context, node: uuid.UUID, slot: int) -> None:
    assert (
        await quarantine_slot(context, admin_operation(), ADMIN, node, slot, reason="XID 79", evidence="dmesg")
    ).status == 200


async def _return(context: Context, node: uuid.UUID, slot: int) -> None:
    assert (await return_slot(context, admin_operation(), ADMIN, node, slot, note="reseated")).status == 200


def _offline(url: str, node: uuid.UUID) -> None:
    with connect(url) as connection:
        connection.execute("update nodes set online = false where id = %s", (node,))


def test_the_history_follows_a_gpu_to_another_node(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    first, second = (node.id for node in seeded.nodes)
    here, there = machine(serials("A")), machine(serials("B"))
    moved = with_gpu(there, 5, serial="A-0002", uuid="GPU-A-0002")

    async def way(context: Context) -> list[Any]:
        await take(context, database_url, first, here)
        await take(context, database_url, second, there)
        await _quarantine(context, first, 2)
        opened = body_of(await repair(context, "A-0002"))
        await take(context, database_url, first, without(here, 2))
        await take(context, database_url, second, moved)
        assert (await close(context, opened["id"])).status == 200
        await approve_topology(context, admin_operation(), ADMIN, second, digest=moved.digest())
        await _quarantine(context, second, 5)
        return await list_history(context.database, "A-0002", before=None, limit=100)

    entries = run_with(database_url, way)
    assert history_of(database_url, "A-0002") == [
        ("seen", A), ("quarantined", A), ("repair_opened", A), ("missing", A), ("moved", B), ("repair_closed", B),
        ("quarantined", B),
    ]  # fmt: skip
    assert [entry.happened for entry in entries][::-1] == [
        happened for happened, _ in history_of(database_url, "A-0002")
    ]
    assert places(database_url, "A-0002") == [(B, [5], False, False)]
    assert history_of(database_url, "B-0005") == [("seen", B), ("missing", B)]
    assert entries[0].evidence == "dmesg"
    assert entries[2].detail == f"from node {A}"
    assert entries[1].actor == f"{ADMIN.kind.value}:{ADMIN.id}"


def test_an_equal_discovery_adds_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"), ["DISK-1", "DISK-2"])

    async def way(context: Context) -> None:
        await take(context, database_url, node, found)
        await take(context, database_url, node, found)

    run_with(database_url, way)
    assert rows_of(database_url, "select count(*) from hardware_history") == [(10,)]
    assert places(database_url, "DISK-1") == [(A, [], False, False)]


def test_a_disk_under_another_name_has_not_moved(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await take(context, database_url, node, machine(serials("A"), ["DISK-1", "DISK-2"]))
        await take(context, database_url, node, machine(serials("A"), ["DISK-2", "DISK-1"]))

    run_with(database_url, way)
    assert history_of(database_url, "DISK-1") == [("seen", A)]
    assert rows_of(database_url, "select positions from hardware_places where serial = 'DISK-1'") == [(["nvme1n1"],)]


def test_gpus_that_change_slots_have_moved(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    swapped = serials("A")
    swapped[0], swapped[7] = swapped[7], swapped[0]

    async def way(context: Context) -> None:
        await take(context, database_url, node, machine(serials("A")))
        await take(context, database_url, node, machine(swapped))

    run_with(database_url, way)
    assert history_of(database_url, "A-0000") == [("seen", A), ("moved", A)]
    assert places(database_url, "A-0000") == [(A, [7], False, False)]
    assert history_of(database_url, "A-0003") == [("seen", A)]


def test_a_gpu_that_a_guest_holds_is_not_missing(database_url: str) -> None:
    """Passed through to a guest, a GPU answers no driver: its address is there and its serial number is not."""
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"))

    async def way(context: Context) -> None:
        await take(context, database_url, node, found)
        await take(context, database_url, node, with_gpu(found, 3, serial=None, uuid=None, driver="vfio-pci"))
        await take(context, database_url, node, found.model_copy(update={"gpus": None}))

    run_with(database_url, way)
    assert history_of(database_url, "A-0003") == [("seen", A)]


def test_a_gpu_that_comes_back_is_seen_again(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"))

    async def way(context: Context) -> dict[str, int]:
        await take(context, database_url, node, found)
        await take(context, database_url, node, without(found, 4))
        counts = await count_hardware(context)
        await _quarantine(context, node, 4)
        await take(context, database_url, node, found)
        await _return(context, node, 4)
        return counts

    assert run_with(database_url, way) == {"contested": 0, "missing": 1, "in_repair": 0}
    assert [what for what, _ in history_of(database_url, "A-0004")] == [
        "seen",
        "missing",
        "quarantined",
        "seen",
        "returned",
    ]


def test_two_nodes_that_report_one_serial_number_contradict_each_other(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    first, second = (node.id for node in seeded.nodes)
    lie = with_gpu(machine(serials("B")), 0, serial="A-0000", uuid="GPU-A-0000")

    async def way(context: Context) -> tuple[Any, dict[str, int]]:
        await take(context, database_url, first, machine(serials("A")))
        await take(context, database_url, second, lie)
        await _quarantine(context, second, 0)
        shown = await find_hardware(context.database, "A-0000")
        counts = await count_hardware(context)
        await take(context, database_url, second, machine(serials("B")))
        await _quarantine(context, first, 0)
        return shown, counts

    shown, counts = run_with(database_url, way)
    assert shown["contested"]
    assert [place["node_id"] for place in shown["places"]] == [str(first), str(second)], "the earlier report first"
    assert counts["contested"] == 2
    entries = rows_of(
        database_url, "select happened, contested from hardware_history where serial = 'A-0000' order by id"
    )
    assert entries == [
        ("seen", False), ("contested", True), ("quarantined", True), ("missing", True), ("quarantined", False),
    ]  # fmt: skip
    assert places(database_url, "A-0000") == [(A, [0], False, False)]


def test_a_contest_ends_with_a_move_when_the_first_node_lets_go(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    first, second = (node.id for node in seeded.nodes)
    both = with_gpu(machine(serials("B")), 0, serial="A-0000", uuid="GPU-A-0000")

    async def way(context: Context) -> None:
        await take(context, database_url, first, machine(serials("A")))
        await take(context, database_url, second, both)
        await take(context, database_url, first, without(machine(serials("A")), 0))

    run_with(database_url, way)
    assert history_of(database_url, "A-0000") == [("seen", A), ("contested", B), ("missing", A), ("moved", B)]
    assert places(database_url, "A-0000") == [(B, [0], False, False)]


def test_hardware_of_a_node_that_is_offline_has_moved(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    first, second = (node.id for node in seeded.nodes)
    taken = with_gpu(machine(serials("B")), 0, serial="A-0000", uuid="GPU-A-0000")

    async def way(context: Context) -> None:
        await take(context, database_url, first, machine(serials("A")))
        _offline(database_url, first)
        await take(context, database_url, second, taken)
        assert places(database_url, "A-0000") == [(B, [0], False, False)]
        await take(context, database_url, first, machine(serials("A")))

    run_with(database_url, way)
    assert history_of(database_url, "A-0000") == [("seen", A), ("moved", B), ("contested", A)]
    assert places(database_url, "A-0000") == [(A, [0], False, True), (B, [0], False, True)]


def test_two_nodes_that_report_one_serial_number_at_once(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)
    nodes = [node.id for node in seeded.nodes]

    async def way(context: Context) -> None:
        for node in nodes:
            await answer_discovery(context, database_url, node, machine(serials("A"), ["DISK-1"]))
        await asyncio.gather(*(take_discovery(context, node) for node in nodes))

    run_with(database_url, way)
    for serial in ("A-0000", "A-0007", "DISK-1"):
        assert sorted(what for what, _ in history_of(database_url, serial)) == ["contested", "seen"]
        assert [(slots, contested) for _, slots, _, contested in places(database_url, serial)] in (
            [([int(serial[-1])], True)] * 2, [([], True)] * 2,
        )  # fmt: skip


def test_faults_of_probes_and_their_quarantines_are_noted_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"), ["DISK-1"])
    sick = health(gpu(2, ecc_uncorrected=7), disks=[disk(media_errors=99)])

    async def way(context: Context) -> None:
        await take(context, database_url, node, found)
        await probe(context, database_url, node, sick)
        await probe(context, database_url, node, health())
        await probe(context, database_url, node, sick)

    run_with(database_url, way)
    assert [what for what, _ in history_of(database_url, "A-0002")][:3] == ["seen", "fault_found", "quarantined"]
    assert [what for what, _ in history_of(database_url, "A-0002")].count("fault_found") == 1
    assert [what for what, _ in history_of(database_url, "DISK-1")] == ["seen", "fault_found"]


def test_a_tenants_report_and_the_quarantine_at_release_are_noted(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await take(context, database_url, node, machine(serials("A")))
        mine = create_allocation(database_url, seeded, gpus=8)
        await provision(context, database_url, mine)
        assert (await send_report(context, seeded, mine)).status == 201
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)

    run_with(database_url, way)
    rows = rows_of(
        database_url,
        "select happened, detail, evidence, reference from hardware_history where serial = 'A-0006' order by id",
    )
    assert [row[0] for row in rows] == ["seen", "fault_reported", "quarantined"]
    assert rows[1][1:3] == ("reported: gpu_error", None), "the tenant's text stays in the report"
    assert rows_of(database_url, "select id from fault_reports") == [(rows[1][3],)]


def test_a_lost_gpu_is_a_fault_and_stays_in_its_place(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"))
    lost = with_gpu(found, 1, lost=True, serial=None, uuid=None, model=None, nvlinks_up=None)

    async def way(context: Context) -> None:
        await take(context, database_url, node, found)
        await take(context, database_url, node, lost)
        await take(context, database_url, node, lost)

    run_with(database_url, way)
    assert history_of(database_url, "A-0001") == [("seen", A), ("fault_found", A)]


def test_an_approval_places_the_gpus_in_their_slots(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    found = machine(serials("A"))
    addresses = [gpu.address for gpu in found.gpus or ()]
    moved = with_gpu(found, 7, address="0000:0e:00.0", numa_node=0)

    async def way(context: Context) -> None:
        await take(context, database_url, node, found)
        await take(context, database_url, node, moved)
        assert places(database_url, "A-0007") == [(A, [], False, False)]
        answer = await approve_topology(context, admin_operation(), ADMIN, node, digest=moved.digest())
        assert answer.status == 200

    assert "0000:0e:00.0" not in addresses
    run_with(database_url, way)
    ((_, slots, _, _),) = places(database_url, "A-0007")
    assert len(slots) == 1
    assert [what for what, _ in history_of(database_url, "A-0007")] == ["seen", "moved", "moved"]
