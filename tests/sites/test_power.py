"""Agents switch machines; one dies, or stops while another takes over, at each step (P7)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine

import pytest

from node_agent.site.lease import LeaseEnded
from node_agent.wire.sites import BmcTaskAnswer, BmcTaskKind, BmcTaskReport
from orchestrator.problems import Invalid
from orchestrator.sites.commands.reports import accept_bmc_report
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from tests.at_length import at_length
from tests.sites.rotations import Killed, Machine, Rotations, rotations
from tests.support.bmc.faults import Fault

KINDS = (BmcTaskKind.POWER_ON, BmcTaskKind.POWER_OFF, BmcTaskKind.POWER_RESET)
_CLAIM = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
select id, %s, 'allocation', gen_random_uuid(), int8multirange(int8range(unit_base, unit_base + 1)),
       tstzrange(clock_timestamp(), null), true, clock_timestamp(), nextval('fences') from nodes where id = %s
"""


async def nothing() -> None:
    """A step of an agent that goes on."""


async def machine_of(stage: Rotations, kind: BmcTaskKind, *, ignores: bool = False) -> Machine:
    """A cordoned machine that is in the other state than the task ends with, and its open task."""
    machine = await stage.machine()
    stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (machine.node_id,))
    machine.service.machine.power = "Off" if kind is BmcTaskKind.POWER_ON else "On"
    machine.service.machine.options.graceful_ignored = ignores
    await machine.request(kind)
    return machine


async def performed(stage: Rotations, machine: Machine) -> BmcTaskAnswer:
    return await stage.perform(stage.second, machine, await stage.take(stage.second, machine), nothing)


def outcome(machine: Machine) -> tuple[object, ...]:
    row = machine.rotations.fleet.connection.execute(
        "select outcome, split_part(failure, ':', 1), power_state from bmc_tasks where id = %s", (machine.task_id,)
    ).fetchone()
    assert row is not None
    return tuple(row)


def require_switched(machine: Machine, kind: BmcTaskKind) -> None:
    wanted = "Off" if kind is BmcTaskKind.POWER_OFF else "On"
    assert machine.service.machine.power == wanted
    assert outcome(machine) == ("completed", None, wanted)


def not_repeated(machine: Machine) -> bool:
    """Whether the next request is another state than the last one: a wait reads the same again and again."""
    *_, before, last = ["", "", *machine.service.requests]
    return not (before == last and last.startswith("GET"))


async def killed_at(stage: Rotations, kind: BmcTaskKind, number: int) -> bool:
    """Kill the first agent at its step of this number, and let the second one go on; False if there is no such step."""
    machine, steps, is_dead = await machine_of(stage, kind, ignores=True), 0, False

    async def step() -> None:
        nonlocal steps, is_dead
        steps += not_repeated(machine)
        is_dead = is_dead or steps == number
        if is_dead:
            raise Killed

    order = await stage.take(stage.first, machine)
    try:
        await stage.perform(stage.first, machine, order, step)
    except Killed:
        if machine.state()[2] is None:
            assert (await performed(stage, machine)).applied
    require_switched(machine, kind)
    if kind is not BmcTaskKind.POWER_RESET:
        effects = machine.service.machine.effects
        assert effects.count("On") + effects.count("ForceOff") == 1, "what was done is not done again"
    return steps >= number


async def stopped_at(stage: Rotations, kind: BmcTaskKind, number: int) -> bool:
    """Stop the first agent there, continue it when the second one has done everything; False if there is no such step."""
    machine, steps, reached = await machine_of(stage, kind), 0, 0

    async def step() -> None:
        nonlocal steps, reached
        steps += not_repeated(machine)
        if steps == number and machine.state()[2] is None:
            stage.first.seconds += 60
            assert (await performed(stage, machine)).applied
            reached = len(machine.service.requests)

    order = await stage.take(stage.first, machine)
    try:
        answer = await stage.perform(stage.first, machine, order, step)
    except LeaseEnded:
        assert reached
    else:
        assert answer.applied is not bool(reached)
    assert reached in (0, len(machine.service.requests)), "no request reached the BMC after the lease"
    require_switched(machine, kind)
    return steps >= number


@pytest.mark.parametrize("play", at_length([killed_at, stopped_at], [killed_at]))
@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_is_switched_whatever_step_an_agent_ends_at(
    database_url: str, kind: BmcTaskKind, play: Callable[[Rotations, BmcTaskKind, int], Coroutine[None, None, bool]]
) -> None:
    async def scene() -> int:
        async with rotations(database_url) as stage:
            number = 1
            while await play(stage, kind, number):
                number += 1
            return number - 1

    assert asyncio.run(scene()) >= 9


def test_a_machine_that_ignores_a_shutdown_is_forced_off(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            polite = await machine_of(stage, BmcTaskKind.POWER_OFF)
            await performed(stage, polite)
            assert polite.service.machine.effects == ["GracefulShutdown"]
            rude = await machine_of(stage, BmcTaskKind.POWER_OFF, ignores=True)
            await performed(stage, rude)
            assert rude.service.machine.effects == ["GracefulShutdown", "ForceOff"]
            refusing = await machine_of(stage, BmcTaskKind.POWER_OFF)
            refusing.service.machine.options.reset_types = ("On", "ForceOff")
            await performed(stage, refusing)
            assert refusing.service.machine.effects == ["ForceOff"]
            for machine in (polite, rude, refusing):
                require_switched(machine, BmcTaskKind.POWER_OFF)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("fault", "times", "found"),
    [
        (Fault.LIE, 9, ("unknown", "bmc_not_settled", None)),
        (Fault.BUSY, 1, ("failed", "bmc_busy", None)),
        (Fault.NO_ANSWER_WITH_EFFECT, 1, ("completed", None, "On")),
    ],
)
def test_what_a_bmc_answers_is_not_believed(
    database_url: str, fault: Fault, times: int, found: tuple[object, ...]
) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await machine_of(stage, BmcTaskKind.POWER_ON)
            machine.service.script.add("Reset", fault, times)
            await performed(stage, machine)
            assert outcome(machine) == found

    asyncio.run(scene())


def test_a_machine_that_is_in_use_by_the_time_of_signing_stays_on(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await machine_of(stage, BmcTaskKind.POWER_OFF)
            stage.fleet.connection.execute(_CLAIM, (uuid.uuid4(), machine.node_id))
            assert await advance_bmc_task(stage.context, machine.task_id) is Advanced.FAILED
            assert outcome(machine) == ("failed", "node_in_use", None)
            serving = await machine_of(stage, BmcTaskKind.POWER_RESET)
            stage.fleet.connection.execute("update nodes set state = 'active' where id = %s", (serving.node_id,))
            assert await advance_bmc_task(stage.context, serving.task_id) is Advanced.FAILED
            assert outcome(serving) == ("failed", "node_state", None)

    asyncio.run(scene())


def test_a_report_of_another_power_state_completes_nothing(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await machine_of(stage, BmcTaskKind.POWER_OFF)
            order = await stage.take(stage.second, machine)
            report = BmcTaskReport(
                fence=order.body.fence, lease_fence=order.lease_fence, outcome="completed", power_state="On"
            )
            with pytest.raises(Invalid):
                await accept_bmc_report(stage.context, stage.second.id, machine.task_id, report, "r")
            assert outcome(machine)[0] is None

    asyncio.run(scene())
