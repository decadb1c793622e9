"""An agent dies, or stops while another takes over, at each step of a rotation: no password is lost (P7, P8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from node_agent.site.lease import LeaseEnded
from node_agent.wire.sites import BmcTaskAnswer, BmcTaskKind
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from tests.at_length import at_length
from tests.sites.rotations import FIRST_PASSWORD, Killed, Machine, Rotations, rotations


async def nothing() -> None:
    """A step of an agent that goes on."""


async def take_over(stage: Rotations, machine: Machine) -> BmcTaskAnswer:
    order = await stage.take(stage.second, machine)
    return await stage.perform(stage.second, machine, order, nothing)


def require_rotated(machine: Machine) -> None:
    assert machine.state() == (2, None, "completed")
    assert machine.password != FIRST_PASSWORD
    assert machine.service.machine.effects.count("password") == 1, "the BMC received one password, once"
    machine.require_known()


async def killed_at(stage: Rotations, number: int) -> bool:
    """Kill the first agent at its step of this number, and let the second one go on; False if there is no such step."""
    machine, steps, is_dead = await stage.machine(), 0, False

    async def step() -> None:
        nonlocal steps, is_dead
        steps += 1
        is_dead = is_dead or steps == number
        if is_dead:
            raise Killed

    await machine.request(BmcTaskKind.ROTATE)
    order = await stage.take(stage.first, machine)
    try:
        await stage.perform(stage.first, machine, order, step)
    except Killed:
        machine.require_known()
        if machine.state()[2] is None:
            assert (await take_over(stage, machine)).applied
    require_rotated(machine)
    return steps >= number


async def stopped_at(stage: Rotations, number: int) -> bool:
    """Stop the first agent there, continue it when the second one has done everything; False if there is no such step."""
    machine, steps, reached = await stage.machine(), 0, 0

    async def step() -> None:
        nonlocal steps, reached
        steps += 1
        if steps == number and machine.state()[2] is None:
            stage.first.seconds += 60
            assert (await take_over(stage, machine)).applied
            reached = len(machine.service.requests)

    await machine.request(BmcTaskKind.ROTATE)
    order = await stage.take(stage.first, machine)
    try:
        answer = await stage.perform(stage.first, machine, order, step)
    except LeaseEnded:
        assert reached
    else:
        assert answer.applied is not bool(reached)
    assert reached in (0, len(machine.service.requests)), "no request reached the BMC after the lease"
    require_rotated(machine)
    return steps >= number


STEPS_MIN = 15
"""Requests of a rotation to the BMC, the password's way to the control plane, and the report."""


@pytest.mark.parametrize("play", at_length([killed_at, stopped_at], [killed_at]))
def test_no_password_is_lost_at_any_step(
    database_url: str, play: Callable[[Rotations, int], Coroutine[None, None, bool]]
) -> None:
    async def scene() -> int:
        async with rotations(database_url) as stage:
            number = 1
            while await play(stage, number):
                number += 1
            return number - 1

    assert asyncio.run(scene()) >= STEPS_MIN


def test_a_rotation_without_a_report_is_unknown_and_a_look_finds_the_password(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machine = await stage.machine()

            async def step() -> None:
                if machine.password != FIRST_PASSWORD:
                    raise Killed

            await machine.request(BmcTaskKind.ROTATE)
            order = await stage.take(stage.first, machine)
            with pytest.raises(Killed):
                await stage.perform(stage.first, machine, order, step)
            stage.fleet.connection.execute("update bmc_tasks set waits_until = clock_timestamp()")
            assert await advance_bmc_task(stage.context, machine.task_id) is Advanced.UNKNOWN
            assert machine.state() == (1, 2, "unknown")
            machine.require_known()
            await machine.request(BmcTaskKind.LOOK)
            assert (await take_over(stage, machine)).applied
            require_rotated(machine)

    asyncio.run(scene())
