"""What a node holds is asked within a bound, and what is older than the question is never passed on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from node_agent.drivers.contract import GuestState, Held, Inventory
from node_agent.drivers.looking import Look
from node_agent.drivers.noop import NoopDriver
from tests.support.waiting import async_wait_for


def of(fence: int) -> Inventory:
    return Inventory([Held(uuid.UUID(int=fence), [0], fence, GuestState.RUNNING)], {})


class Hanging(NoopDriver):
    """Each look waits until it is let go."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.asked: list[asyncio.Future[Inventory]] = []

    async def inventory(self) -> Inventory:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def scene(scenario: Callable[[Hanging, Look], Awaitable[None]], seconds_max: float = 0.01) -> None:
    async def within() -> None:
        driver = Hanging()
        await scenario(driver, Look(driver, seconds_max))

    asyncio.run(within())


def test_a_look_that_hangs_is_left_and_not_asked_again_until_it_ended() -> None:
    async def scenario(driver: Hanging, look: Look) -> None:
        assert await look() is None
        assert await look() is None
        assert len(driver.asked) == 1, "one thread at most waits for libvirtd"
        driver.asked[0].set_result(of(1))
        await async_wait_for(lambda: look._running is not None and look._running.done(), "the end of the first look")
        assert await look() is None, "what the first one found is older than this question"
        assert len(driver.asked) == 2

    scene(scenario)


@pytest.mark.parametrize("problem", [None, OSError("libvirt: gone")])
def test_what_is_found_in_time_is_returned_and_a_failure_is_none(problem: OSError | None) -> None:
    async def scenario(driver: Hanging, look: Look) -> None:
        asked = asyncio.create_task(look())
        await async_wait_for(lambda: driver.asked, "the question")
        if problem is None:
            driver.asked[0].set_result(of(3))
        else:
            driver.asked[0].set_exception(problem)
        found = await asked
        assert (found is None) == (problem is not None)
        assert found is None or found.held[0].fence == 3

    scene(scenario, seconds_max=60)


def test_a_defect_of_a_driver_ends_the_loop_that_asked() -> None:
    async def scenario(driver: Hanging, look: Look) -> None:
        asked = asyncio.create_task(look())
        await async_wait_for(lambda: driver.asked, "the question")
        driver.asked[0].set_exception(KeyError("a defect"))
        with pytest.raises(KeyError):
            await asked

    scene(scenario, seconds_max=60)


def test_a_cancelled_look_ends_the_question() -> None:
    async def scenario(driver: Hanging, look: Look) -> None:
        asked = asyncio.create_task(look())
        await async_wait_for(lambda: driver.asked, "the question")
        asked.cancel()
        await asyncio.wait((asked,))
        assert driver.asked[0].cancelled()

    scene(scenario, seconds_max=60)
