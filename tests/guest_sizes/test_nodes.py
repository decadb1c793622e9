"""No node serves an active SKU whose size it cannot give: a SKU and a topology are checked against each other, in any order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from node_agent.wire.guests import GUEST_SIZE_FEATURE
from node_agent.wire.topology import NumaNode
from orchestrator.catalogue.commands import put_sku
from orchestrator.catalogue.rules import GuestSize
from orchestrator.nodes.commands.topologies import approve_topology
from orchestrator.nodes.topology.judging import Taken
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import GPU_MODEL, SLICE_SKU, Seeded, connect, seed
from tests.discovery import topologies as made
from tests.discovery.topologies import discover
from tests.support.paused_commits import waiting_sessions
from tests.support.waiting import wait_for

GIB = 2**30


def topology(second: str = "8-15", memory_bytes: int = 64 * GIB) -> Any:
    """Two NUMA nodes with four GPUs each; `second`: the processors of the second one."""
    nodes = [
        NumaNode(number=number, processors=processors, memory_bytes=memory_bytes)
        for number, processors in enumerate(("0-7", second))
    ]
    return made.topology(numa_nodes=nodes)


async def put(context: Context, name: str = "large", **members: Any) -> tuple[int, dict[str, Any]]:
    """Put a SKU; status and document."""
    size = GuestSize(members.pop("vcpus", None), members.pop("memory_bytes", None))
    body = {
        "shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1], "default_image": None,
        "price_micro_per_gpu_second": None, "state": None, **members,
    }  # fmt: skip
    answer = await put_sku(context, admin_operation(), ADMIN, name=name, size=size, **body)
    return answer.status, json.loads(answer.body)


def in_fleet(url: str, work: Callable[[Context, UUID], Awaitable[None]], features: str = GUEST_SIZE_FEATURE) -> Seeded:
    """Run `work` with a context and the one node of slices."""
    seeded = seed(url)
    know(url, features)
    run_with(url, lambda context: work(context, seeded.nodes[0].id))
    return seeded


def know(url: str, features: str) -> None:
    """The agents have these features, until their next heartbeats."""
    with connect(url) as connection:
        connection.execute(
            "update nodes set agent_version = '0.1', agent_features = %s", ([features] if features else [],)
        )


async def found(context: Context, url: str, node: UUID, topology: Any) -> Taken:
    """One discovery by an agent that knows sizes."""
    return await discover(context, url, node, topology, [GUEST_SIZE_FEATURE])


async def approve(context: Context, node: UUID, digest: str) -> Answer:
    """The operator approves what was found."""
    return await approve_topology(context, admin_operation(), ADMIN, node, digest=digest)


def test_a_sku_is_refused_while_a_slot_of_its_nodes_has_less(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        assert (await put(context, "unchecked", vcpus=200))[0] == 201, "no topology is approved yet"
        assert (await put(context, "unchecked", state="retired"))[0] == 200
        assert await found(context, database_url, node, topology("8-13")) is Taken.APPROVED
        status, refused = await put(context, vcpus=2)
        assert (status, refused["code"], refused["slot"], refused["node"], refused["sku"]) == (
            409, "guest_size_misfit", 4, "gpu-slice-0", "large",
        )  # fmt: skip
        assert "slot 4 has 1 processors by the topology, and 2 are stated" in refused["detail"]
        status, refused = await put(context, memory_bytes=17 * GIB)
        assert (status, refused["code"], refused["slot"]) == (409, "guest_size_misfit", 0)
        assert (await put(context, vcpus=1, memory_bytes=16 * GIB))[0] == 201
        assert (await put(context, "unchecked", state="active"))[1]["code"] == "guest_size_misfit", "offered again"
        assert (await put(context, "kept", vcpus=200, state="retired"))[0] == 201, "a retired one serves nothing"
        assert (await put(context, "far", vcpus=200, gpu_model="B300"))[0] == 201, "nodes of another model"
        assert (await put(context, "far", gpu_model=GPU_MODEL))[1]["code"] == "guest_size_misfit"

    in_fleet(database_url, work)
    stated = "select name from skus where num_nonnulls(vcpus_per_gpu, memory_bytes_per_gpu) > 0 order by 1"
    assert rows_of(database_url, stated) == [("far",), ("kept",), ("large",), ("unchecked",)]
    assert rows_of(database_url, "select count(*) from audit where action = 'sku.put' and subject = 'skus/large'") == [
        (1,)
    ]
    detail = row_of(database_url, "select detail from audit where subject = 'skus/large'")["detail"]
    assert (detail["vcpus_per_gpu"], detail["memory_bytes_per_gpu"]) == (1, 16 * GIB)


def test_what_is_stored_of_an_earlier_topology_is_no_lack(database_url: str) -> None:
    """A process of the version before approves a topology, and leaves the sizes of the slots as they were."""

    async def work(context: Context, node: UUID) -> None:
        assert await found(context, database_url, node, topology("8-13")) is Taken.APPROVED
        with connect(database_url) as connection:
            connection.execute("update node_topologies set slot_memory_bytes = 1")
        assert (await put(context, memory_bytes=16 * GIB))[0] == 201
        assert (await put(context, "larger", memory_bytes=17 * GIB))[1]["code"] == "guest_size_misfit"

    in_fleet(database_url, work)


def test_a_retired_node_keeps_no_sku_from_being_made(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        await discover(context, database_url, node, topology("8-13"))
        assert (await put(context, vcpus=2))[1]["code"] == "guest_size_unsupported"
        with connect(database_url) as connection:
            connection.execute("update nodes set online = false, state = 'retired' where id = %s", (node,))
        assert (await put(context, vcpus=2))[0] == 201

    in_fleet(database_url, work)


def test_an_agent_that_knows_no_sizes_keeps_a_sku_with_one_from_being_made(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        status, refused = await put(context, vcpus=2)
        assert (status, refused["code"], refused["agent_version"]) == (409, "guest_size_unsupported", "0.1")
        assert (await put(context))[0] == 201, "one without a size needs nothing of the agent"
        assert (await put(context, "later", vcpus=2, state="retired"))[0] == 201

    in_fleet(database_url, work, features="")


def test_a_topology_with_too_little_is_not_approved(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        assert (await put(context, vcpus=2))[0] == 201
        small = topology("8-13")
        assert await found(context, database_url, node, small) is Taken.FOUND
        refused = await approve(context, node, small.digest())
        assert (refused.status, json.loads(refused.body)["code"], json.loads(refused.body)["slot"]) == (
            409, "guest_size_misfit", 4,
        )  # fmt: skip
        assert row_of(database_url, "select approved, slot_processors from node_topologies") == {
            "approved": None, "slot_processors": None,
        }  # fmt: skip
        assert (await put(context, state="retired"))[0] == 200
        assert (await approve(context, node, small.digest())).status == 200

    in_fleet(database_url, work)
    stored = row_of(database_url, "select slot_processors, slot_memory_bytes from node_topologies")
    assert stored == {"slot_processors": 1, "slot_memory_bytes": 16 * GIB}


def test_a_topology_of_an_agent_that_knows_no_sizes_is_not_approved(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        assert (await put(context, vcpus=2))[0] == 201
        assert await discover(context, database_url, node, topology()) is Taken.FOUND, "its heartbeats name no feature"
        refused = await approve(context, node, topology().digest())
        assert json.loads(refused.body)["code"] == "guest_size_unsupported"
        know(database_url, GUEST_SIZE_FEATURE)
        assert (await approve(context, node, topology().digest())).status == 200

    in_fleet(database_url, work)


def test_what_was_approved_by_the_version_before_is_evaluated_at_the_next_discovery(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        assert await found(context, database_url, node, topology("8-13")) is Taken.APPROVED
        with connect(database_url) as connection:
            connection.execute("update node_topologies set slot_processors = null, slot_memory_bytes = null")
        assert await found(context, database_url, node, topology("8-13")) is Taken.FOUND
        assert (await put(context, vcpus=2))[1]["code"] == "guest_size_misfit"

    in_fleet(database_url, work)


def test_the_size_of_a_sku_is_fixed_when_it_is_made(database_url: str) -> None:
    async def work(context: Context, node: UUID) -> None:
        assert (await put(context, vcpus=2))[0] == 201
        status, refused = await put(context, vcpus=3)
        assert (status, refused["code"], refused["vcpus_per_gpu"], refused["memory_bytes_per_gpu"]) == (
            409, "guest_size_fixed", 2, None,
        )  # fmt: skip
        for other in ({"memory_bytes": 64 * GIB}, {"vcpus": 2, "memory_bytes": 64 * GIB}, {"shape": "baremetal"}):
            assert (await put(context, **other))[1]["code"] == "guest_size_fixed"
        status, kept = await put(context, price_micro_per_gpu_second=7)
        assert (status, kept["vcpus_per_gpu"], kept["price_micro_per_gpu_second"]) == (200, 2, 7)
        assert (await put(context, vcpus=2))[0] == 200
        assert (await put(context, SLICE_SKU, vcpus=2))[1]["code"] == "guest_size_fixed", "it was made without one"

    in_fleet(database_url, work)


def test_a_sku_and_a_topology_that_come_together_are_not_both_accepted(database_url: str) -> None:
    """Either waits for the other: the second one sees what the first one wrote."""

    async def work(context: Context, node: UUID) -> None:
        small = topology("8-13")
        assert (await put(context, "first", vcpus=2))[0] == 201
        assert await found(context, database_url, node, small) is Taken.FOUND
        assert (await put(context, "first", state="retired"))[0] == 200
        with connect(database_url) as watch, connect(database_url) as connection, connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtext('guest_sizes'), 0)")
            both = asyncio.gather(put(context, vcpus=2), approve(context, node, small.digest()))
            await asyncio.to_thread(wait_for, lambda: waiting_sessions(watch) == 2, "both wait", 15.0)
        (status, _), approved = await both
        assert sorted([status, approved.status]) in ([200, 409], [201, 409])

    in_fleet(database_url, work)
