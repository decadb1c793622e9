"""Leases of slots: renewed while something of the allocation is there, cleared when nothing is, never otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from node_agent.drivers import leases as leases_module
from node_agent.drivers.contract import DriverFailure
from node_agent.drivers.leases import Lease, Leases
from node_agent.protocol import FailureCode, HeldInventory, TaskType
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.agent_faults import code

LEASE_SECONDS = 60.0


class Boot:
    """A clock since boot that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(leases_module, "boot_seconds", lambda: self.seconds)


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    """The clock that leases are judged by."""
    return Boot(monkeypatch)


def test_a_lease_in_use_is_renewed_and_never_cleared(tmp_path: Path, boot: Boot) -> None:
    leases, allocation = Leases(tmp_path, LEASE_SECONDS), uuid.uuid4()
    leases.take([0, 1], allocation, 7)
    for _ in range(3):
        boot.seconds += LEASE_SECONDS * 2
        assert leases.tend(lambda _: True) == {}
    assert leases.held()[1].expires_at_boot_seconds == boot.seconds + LEASE_SECONDS
    assert {slot: (lease.allocation_id, lease.fence) for slot, lease in leases.held().items()} == dict.fromkeys(
        (0, 1), (allocation, 7)
    )


def test_a_renewed_lease_is_on_the_disk_before_it_replaces_the_earlier_one(
    tmp_path: Path, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave an empty file: a lease that cannot be read is cleared, also one in use."""
    leases, synced, replaced = Leases(tmp_path, LEASE_SECONDS), set[int](), list[bool]()
    leases.take([0, 1], uuid.uuid4(), 7)
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        if os.fstat(descriptor).st_size:
            synced.add(os.fstat(descriptor).st_ino)

    def renamed(source: Path, target: Path) -> None:
        replaced.append(Path(source).stat().st_ino in synced)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    leases.tend(lambda _: True)
    assert replaced == [True, True]


def test_an_own_lease_is_cleared_when_it_has_expired_and_not_before(tmp_path: Path, boot: Boot) -> None:
    leases = Leases(tmp_path, LEASE_SECONDS)
    leases.take([3], uuid.uuid4(), 7)
    boot.seconds += LEASE_SECONDS - 1
    assert leases.tend(lambda _: False) == {}
    boot.seconds += 1
    assert list(leases.tend(lambda _: False)) == [3]
    leases.take([3], uuid.uuid4(), 8)


def test_what_an_earlier_agent_or_boot_left_is_cleared_at_once_unless_in_use(tmp_path: Path, boot: Boot) -> None:
    gone, there = uuid.uuid4(), uuid.uuid4()
    earlier = Leases(tmp_path, LEASE_SECONDS)
    earlier.take([0], gone, 7)
    earlier.take([1], there, 8)
    (tmp_path / "slot-2.json").write_bytes(b'{"allocation')
    (tmp_path / "slot-4.json").write_text(json.dumps({"allocation_id": str(gone), "fence": 1}))
    agent = Leases(tmp_path, LEASE_SECONDS)
    assert sorted(agent.tend(lambda allocation: allocation == there)) == [0, 2, 4]
    assert list(agent.held()) == [1]


class Leasing(RuleBasedStateMachine):
    """Agents come and go, allocations take and vanish, time passes: what is in use keeps its slots."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.leases = Leases(self.directory, LEASE_SECONDS)
        self.in_use: dict[uuid.UUID, set[int]] = {}
        self.made = 0

    @rule(slots=st.sets(st.integers(0, 5), min_size=1))
    def take(self, slots: set[int]) -> None:
        self.made += 1
        allocation = uuid.UUID(int=self.made)
        taken = set().union(*self.in_use.values()) if self.in_use else set()
        try:
            self.leases.take(sorted(slots), allocation, 1)
        except DriverFailure:
            assert slots & set(self.leases.held())
        else:
            assert not slots & taken
            self.in_use[allocation] = slots

    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        if self.in_use:
            del self.in_use[data.draw(st.sampled_from(sorted(self.in_use)))]

    @rule()
    def tend(self) -> None:
        self.leases.tend(lambda allocation: allocation in self.in_use)

    @rule()
    def restart_the_agent(self) -> None:
        self.leases = Leases(self.directory, LEASE_SECONDS)

    @invariant()
    def what_is_in_use_is_leased(self) -> None:
        held = self.leases.held()
        for allocation, slots in self.in_use.items():
            assert all(held[slot].allocation_id == allocation for slot in slots)

    def teardown(self) -> None:
        self.leases = Leases(self.directory, LEASE_SECONDS)
        self.leases.tend(lambda allocation: allocation in self.in_use)
        assert set(self.leases.held()) == (set().union(*self.in_use.values()) if self.in_use else set())
        self.temporary.cleanup()


TestLeasing = pytest.mark.full(Leasing.TestCase)


@pytest.mark.full
def test_a_conflict_with_a_dead_lease_heals_by_the_retry(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        dead = Lease(allocation_id=uuid.uuid4(), fence=3)
        (agent.sandbox / "leases" / "slot-2.json").write_text(dead.model_dump_json())
        allocation = uuid.uuid4()
        first = plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation)
        report = await plane.result_of(await plane.hand_out(first))
        assert code(report) is FailureCode.LEASE_CONFLICT
        again = plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation)
        assert (await plane.result_of(await plane.hand_out(again))).outcome == "completed"
        assert "lease_cleared" in agent.log

    play(scenario)


def test_start_clears_dead_leases_and_keeps_those_in_use(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, processes_only = uuid.uuid4(), uuid.uuid4()
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation)
        assert (await plane.result_of(await plane.hand_out(body))).outcome == "completed"
        agent.kill()
        leases = agent.sandbox / "leases"
        for slot, holder in ((1, uuid.uuid4()), (2, processes_only)):
            (leases / f"slot-{slot}.json").write_text(Lease(allocation_id=holder, fence=3).model_dump_json())
        environment = {**os.environ, "BERTH_ALLOCATION_ID": str(processes_only)}
        left_behind = subprocess.Popen(["sleep", "1000"], env=environment)
        try:
            plane.heartbeats.clear()
            agent.start()
            await plane.until(lambda: bool(plane.heartbeats) and agent.leased_slots() == {"slot-0.json", "slot-2.json"})
        finally:
            left_behind.kill()
            left_behind.wait()
        inventory = await _complete_inventory(plane)
        assert {held.allocation_id: held.slots for held in inventory.allocations} == {
            allocation: [0], processes_only: [2],
        }  # fmt: skip

    play(scenario)


async def _complete_inventory(plane: ControlPlane) -> HeldInventory:
    await plane.until(lambda: plane.heartbeats[-1].inventory is not None)
    inventory = plane.heartbeats[-1].inventory
    assert inventory is not None
    return inventory
