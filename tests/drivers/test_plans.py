"""A driver's plans, performed in the test's own process: phases twice, two orders for one slot, verbs, console, topology."""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import (
    DriverFailure,
    GuestState,
    Phase,
    Plan,
    Progress,
    Verb,
    phases_of,
)
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode
from tests.drivers.harness import Harness, Probe
from tests.drivers.in_process import SLOT, Node, play
from tests.drivers.stage import end_processes
from tests.support.waiting import async_wait_for


def twice(plan: Plan[Any], probe: Probe, changed: list[str]) -> Plan[Any]:
    """The plan, each of whose phases runs a second time; `changed` names the phases whose repetition changed anything."""

    def repeated(phase: Phase) -> Phase:
        async def run(progress: Progress) -> str:
            await phase.run(progress)
            once = await settled(probe)
            detail = await phase.run(progress)
            again = await settled(probe)
            if again != once:
                changed.append(f"{phase.name}: {once} became {again}")
            return detail

        return Phase(phase.name, run)

    return replace(plan, phases=[repeated(phase) for phase in plan.phases])


async def settled(probe: Probe) -> object:
    """What is there when a guest that has just started has gone on as far as it does by itself."""
    seen: list[object] = []

    def same_again() -> bool:
        seen.append(probe.snapshot())
        return len(seen) > 1 and seen[-1] == seen[-2]

    await async_wait_for(same_again, "the node to settle")
    return seen[-1]


# Long. tests/drivers/test_conformance.py repeats phases after kills.
@pytest.mark.full
def test_a_phase_that_runs_again_at_once_changes_nothing(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        changed: list[str] = []
        order = node.order(user_data="#!/bin/sh\n")
        result = await perform(twice(node.driver.provision(order), node.probe, changed), Unheard())
        assert changed == []
        assert await node.probe.answers(result.connection, order.allocation_id)
        assert await node.state(order) is GuestState.RUNNING
        for verb in harness.verbs:
            await perform(twice(node.verb(order, verb), node.probe, changed), Unheard())
            assert changed == []
        released = await perform(twice(node.release(order), node.probe, changed), Unheard())
        assert changed == []
        assert released.released
        assert released.evidence["was_there"] is True
        assert [proof["proven"] for proof in released.evidence["devices"]] == [True]
        assert node.probe.there() == set()

    play(harness, tmp_path, scenario)


def test_one_of_two_orders_for_a_slot_meets_the_lease_of_the_other(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        orders = [node.order(fence) for fence in (1, 2)]
        ends = await asyncio.gather(
            *(perform(node.driver.provision(order), Unheard()) for order in orders), return_exceptions=True
        )
        failures = [end for end in ends if isinstance(end, BaseException)]
        assert len(failures) == 1
        assert isinstance(failures[0], DriverFailure)
        assert failures[0].code is FailureCode.LEASE_CONFLICT
        loser, winner = sorted(orders, key=lambda order: order.allocation_id in node.probe.processes())
        await node.driver.cleanup(loser.allocation_id)
        assert node.probe.leases() == {SLOT[0]: winner.allocation_id}
        assert await node.state(winner) is GuestState.RUNNING

    play(harness, tmp_path, scenario)


def test_a_provision_cancelled_in_any_phase_can_be_cleaned_up(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        for place in range(len(harness.provision_phases)):
            order = node.order()
            plan = node.driver.provision(order)
            reached = asyncio.Event()
            work = asyncio.create_task(perform(_announced(plan, place, reached), Unheard()))
            await reached.wait()
            work.cancel()
            await asyncio.wait((work,))
            await node.driver.cleanup(order.allocation_id)
            assert node.probe.there() == set(), harness.provision_phases[place]
            assert (await node.driver.inventory()).held == []

    play(harness, tmp_path, scenario)


def _announced(plan: Plan[Any], place: int, reached: asyncio.Event) -> Plan[Any]:
    """The plan, which sets `reached` when the phase at `place` begins."""
    phase = plan.phases[place]

    async def run(progress: Progress) -> str:
        reached.set()
        await asyncio.to_thread(os.getpid)  # an await at which the cancellation may arrive
        return await phase.run(progress)

    phases = [*plan.phases]
    phases[place] = Phase(phase.name, run)
    return replace(plan, phases=phases)


def test_the_newer_fence_replaces_what_is_there(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = node.order(7)
        first = await perform(node.driver.provision(order), Unheard())
        await node.probe.plant(first.connection, "of-the-older-fence")
        second = await perform(node.driver.provision(replace(order, fence=9)), Unheard())
        assert not node.probe.traces("of-the-older-fence")
        assert await node.probe.answers(second.connection, order.allocation_id)
        assert not await node.probe.answers(first.connection, order.allocation_id)
        (held,) = (await node.driver.inventory()).held
        assert (held.allocation_id, list(held.slots), held.fence) == (order.allocation_id, SLOT, 9)

    play(harness, tmp_path, scenario)


def test_verbs_keep_the_claim_and_only_rebuild_discards_the_disk(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        assert node.driver.verbs == frozenset(harness.verbs)
        order = node.order()
        for verb in Verb:
            with pytest.raises(DriverFailure) as refused:
                node.verb(order, verb)
            assert refused.value.code is FailureCode.TASK_REFUSED, "nothing is held yet"
        up = await perform(node.driver.provision(order), Unheard())
        await node.probe.plant(up.connection, "marker-of-verbs")
        for verb in (verb for verb in (Verb.REBOOT, Verb.STOP, Verb.START, Verb.REBUILD) if verb in harness.verbs):
            plan = node.verb(order, verb)
            assert tuple(phases_of(plan)) == harness.verbs[verb]
            result = await perform(plan, Unheard())
            assert node.probe.leases() == {SLOT[0]: order.allocation_id}
            if verb is Verb.STOP:
                assert result.connection is None
                assert node.probe.processes() == {}
                assert await node.state(order) is GuestState.STOPPED
                assert await node.driver.resume() == [], "what is stopped is not started by a new agent"
                continue
            assert result.connection is not None
            assert await node.probe.answers(result.connection, order.allocation_id)
            assert await node.state(order) is GuestState.RUNNING
            assert await node.probe.remains(result.connection, "marker-of-verbs") is (verb is not Verb.REBUILD)
        if Verb.REBUILD in harness.verbs:
            assert not node.probe.traces("marker-of-verbs")

    play(harness, tmp_path, scenario)


def test_a_guest_that_dies_is_reported_and_comes_back(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        end_processes(node.probe)
        await async_wait_for(lambda: not node.probe.processes(), "the guest to end")
        assert await node.state(order) is GuestState.DOWN
        assert (await node.driver.inventory()).dead == [order.allocation_id]
        assert await node.driver.resume() == [order.allocation_id]
        assert await node.probe.answers(up.connection, order.allocation_id)
        assert await node.state(order) is GuestState.RUNNING
        assert await node.driver.tend_leases() == []
        assert node.probe.leases() == {SLOT[0]: order.allocation_id}

    play(harness, tmp_path, scenario)


def test_the_topology_and_the_console(harness: Harness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        topology = await node.driver.topology()
        assert (topology.driver, topology.firmware.kernel) == (harness.name, os.uname().release)
        assert topology.processors.threads == os.cpu_count()
        assert topology.memory_bytes
        assert topology.disks is not None
        with pytest.raises(LookupError):
            await node.driver.console(uuid.uuid4(), 0, 1000)
        order = node.order()
        await perform(node.driver.provision(order), Unheard())
        whole = await node.driver.console(order.allocation_id, 0, 1 << 20)
        assert whole.offset == 0
        part = await node.driver.console(order.allocation_id, len(whole.data), 10)
        assert len(part.data) <= 10

    play(harness, tmp_path, scenario)
