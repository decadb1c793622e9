"""Rules of updates: any agents that die anywhere send once, and only a version read back completes. Without a control plane."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess
from node_agent.redfish.problems import BmcProblem
from node_agent.site.bmcs import GuardedTransport
from node_agent.site.problems import NotDone
from node_agent.site.updates import FirmwareUpdate
from node_agent.wire.deploy_tasks import FirmwareVersion
from node_agent.wire.firmware import (
    FirmwareEntry,
    FirmwareOrder,
    FirmwareProgress,
    FirmwareReading,
    FirmwareResult,
)
from orchestrator.maintenance.states import WindowTaskState
from orchestrator.nodes.firmware.rules import Reading, objections
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.sites.store.firmware_updates import EndedUpdate
from orchestrator.sites.updating.rules import carried_over, conclude
from tests.sites.rotations import PATIENT, Killed, Stepping
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.service import StubService
from tests.support.bmc.transport import StubTransport

ORDER = FirmwareOrder(image_url="https://a.example/b.bin", sha256="0" * 64, targets=["BMC"], version="2.00")
ACCESS = BmcAccess("https://192.0.2.7", "berth", "first-secret", "ab" * 32)
UPDATE = "POST .*SimpleUpdate"


@dataclass
class World:
    """A machine, and what is stored of its update."""

    service: StubService
    stored: FirmwareProgress | None = None
    results: list[FirmwareResult] = field(default_factory=list)

    async def agent(self, dies_at: int) -> str:
        """An agent performs the task and dies before this step; how its part ended."""
        steps = 0

        async def step() -> None:
            nonlocal steps
            steps += 1
            if steps == dies_at:
                raise Killed

        async def keep(progress: FirmwareProgress | None) -> FirmwareProgress | None:
            await step()
            if progress is not None and self.stored is None:
                self.stored = progress
            elif progress is not None and self.stored is not None and self.stored.sender == progress.sender:
                self.stored = self.stored.model_copy(update={"task": progress.task})
            return self.stored

        @contextlib.asynccontextmanager
        async def serve() -> AsyncIterator[str]:
            await step()
            yield "http://198.51.100.7/firmware/x/b.bin"

        transport = Stepping(GuardedTransport(StubTransport(self.service), lambda: None), step)
        bmc = RedfishBmc(ACCESS, PATIENT, quiet=True, clock=self.service.machine.clock, transport=transport)
        update = FirmwareUpdate(ORDER, keep, serve, lambda: 900.0)
        try:
            await update.run(bmc)
        except Killed:
            return "killed"
        except (BmcProblem, NotDone):
            self.results.append(update.result)
            return "failed"
        self.results.append(update.result)
        return "completed"


@settings(max_examples=60, deadline=None)
@given(
    deaths=st.lists(st.integers(1, 40), max_size=3),
    fault=st.sampled_from([None, Fault.ERROR, Fault.ERROR_WITH_EFFECT, Fault.BROKEN_AFTER, Fault.BUSY, Fault.LIE]),
    applies=st.sampled_from(["", "host", "bmc"]),
    restarts=st.booleans(),
    fails=st.booleans(),
)
def test_any_agents_that_die_anywhere_send_once_and_complete_only_what_is_proven(
    deaths: list[int], fault: Fault | None, applies: str, restarts: bool, fails: bool
) -> None:
    options = Options(
        tasks=True, update_applies=applies, update_restarts=restarts, task_state="Exception" if fails else "Completed"
    )
    world = World(StubService(StubMachine(VirtualClock(), options, power="On")))
    if fault is not None:
        world.service.script.add(UPDATE, fault)

    async def scene() -> None:
        for dies_at in [*deaths, 10_000]:
            before = len(world.service.machine.boots)
            was_known = world.stored is not None and world.stored.task is not None
            how = await world.agent(dies_at)
            if how == "killed":
                continue
            machine, result = world.service.machine, world.results[-1]
            sent = sum(line.endswith("SimpleUpdate") for line in world.service.requests)
            assert sent <= 1
            assert (how == "completed") <= (machine.firmware == "2.00"), "what is not so is not completed"
            if not result.sent and not result.already and world.stored is not None:
                assert machine.effects.count("update") == 0, "what is said not to be sent has no effect"
            if deaths and not was_known and world.stored is not None and not world.stored.tasks and sent == 0:
                assert len(machine.boots) == before, "nothing is restarted for an update that was not seen"
            return

    asyncio.run(scene())


def reading(version: str, bios: str = "2.19", bmc: str = "1.00") -> FirmwareReading:
    return FirmwareReading(targets=[FirmwareEntry(id="BMC", name="the BMC", version=version)], bios=bios, bmc=bmc)


SENDER, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
PROGRESS = FirmwareProgress(sender=SENDER, before=reading("1.00"), power_state="On", tasks=[])
RESULTS = st.none() | st.builds(
    FirmwareResult,
    sent=st.booleans(),
    sender=st.sampled_from([None, SENDER, OTHER]),
    already=st.just(False),
    before=st.just(reading("1.00")),
    after=st.none() | st.sampled_from([reading("1.00"), reading("2.00"), FirmwareReading(targets=[])]),
    restarted=st.just([]),
)


@given(
    outcome=st.none() | st.sampled_from(list(BmcTaskOutcome)),
    progress=st.none() | st.just(PROGRESS),
    result=RESULTS,
)
def test_what_may_have_been_sent_and_is_not_proven_keeps_the_machine_out_of_service(
    outcome: BmcTaskOutcome | None, progress: FirmwareProgress | None, result: FirmwareResult | None
) -> None:
    failure = None if outcome is BmcTaskOutcome.COMPLETED else "code: why"
    verdict = conclude(EndedUpdate(ORDER, outcome, failure, progress, result))
    is_proven = result is not None and result.after == reading("2.00")
    assert (verdict.state is WindowTaskState.COMPLETED) is (outcome is BmcTaskOutcome.COMPLETED and is_proven)
    assert (verdict.failure is None) is (verdict.state is WindowTaskState.COMPLETED)
    says_not_sent = result is not None and not result.sent and result.sender == SENDER
    if verdict.state is WindowTaskState.NOT_RUN:
        assert progress is None or says_not_sent
        assert outcome in (BmcTaskOutcome.FAILED, BmcTaskOutcome.UNKNOWN)
    if outcome is None or (progress is not None and not says_not_sent and outcome is BmcTaskOutcome.UNKNOWN):
        assert verdict.state is WindowTaskState.INTERRUPTED


def version(component: str, unit: str, number: str) -> FirmwareVersion:
    return FirmwareVersion(component=component, unit=unit, model=None, version=number)


KNOWN = Reading(
    [version("bios", "smbios", "2.19"), version("disk", "S1", "GDC")],
    [version("bmc", "BMC", "1.00"), version("inventory", "the BMC", "1.00"), version("inventory", "CPLD", "7")],
)


@pytest.mark.parametrize(
    ("before", "after", "now", "objected"),
    [
        (reading("1.00"), reading("2.00", bmc="2.00"), ("2.19", "2.00", "2.00", "7"), []),
        (reading("1.00"), reading("2.00", bios="2.20"), ("2.20", "1.00", "2.00", "7"), []),
        (reading("1.00"), reading("2.00", bios="", bmc=""), ("2.19", "1.00", "2.00", "7"), []),
        (
            reading("1.00"),
            reading("2.00", bmc="2.00"),
            ("2.19", "2.00", "2.00", "8"),
            ["inventory CPLD: 7 before, 8 now"],
        ),
        (reading("1.00"), reading("2.00"), ("2.20", "1.00", "2.00", "7"), ["bios smbios: 2.19 before, 2.20 now"]),
        (reading("0.90"), reading("2.00", bmc="2.00"), ("2.19", "2.00", "2.00", "7"), []),
    ],
    ids=["bmc", "bios", "not-described", "another-part", "another-bios", "flashed-before"],
)
def test_the_next_release_compares_with_what_the_update_made_and_with_nothing_else(
    before: FirmwareReading, after: FirmwareReading, now: tuple[str, str, str, str], objected: list[str]
) -> None:
    known = carried_over(KNOWN, FirmwareResult(sent=True, before=before, after=after))
    bios, bmc, target, other = now
    found = Reading(
        [version("bios", "smbios", bios), version("disk", "S1", "GDC")],
        [version("bmc", "BMC", bmc), version("inventory", "the BMC", target), version("inventory", "CPLD", other)],
    )
    assert [detail for _, detail in objections(known, found, None)] == objected


def test_what_was_not_read_before_is_not_made_known_by_an_update() -> None:
    nothing = Reading(None, None)
    done = FirmwareResult(sent=True, before=reading("1.00"), after=reading("2.00"))
    assert carried_over(nothing, done) == nothing
    assert carried_over(KNOWN, FirmwareResult(sent=True, before=reading("1.00"))) == KNOWN
