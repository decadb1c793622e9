"""When a guest that runs counts as unreachable, and when no more; what greets as an SSH server does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.drivers.contract import GuestState, Held, Inventory
from node_agent.drivers.noop import NoopDriver
from node_agent.drivers.reachability import CHECK_SECONDS_MAX, Reachability
from node_agent.drivers.ssh import GREETING_LINES_MAX, greets

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
SILENT_SECONDS = 60.0


class Guests(NoopDriver):
    """Guests that answer or do not."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.answering: dict[UUID, bool] = {}
        self.asked: list[UUID] = []

    async def answers(self, allocation_id: UUID) -> bool:
        self.asked.append(allocation_id)
        return self.answering[allocation_id]


def holding(*running: UUID, stopped: UUID | None = None) -> Inventory:
    held = [Held(one, [0], 7, GuestState.RUNNING) for one in running]
    return Inventory([*held, *([Held(stopped, [1], 7, GuestState.STOPPED)] if stopped else [])], {})


@given(st.lists(st.tuples(st.floats(0.1, 40), st.sampled_from([True, False, None])), max_size=30))
def test_a_guest_is_unreachable_from_its_first_silence_on_once_that_lasts(
    steps: list[tuple[float, bool | None]],
) -> None:
    """None: the guest does not run."""
    now, silent_since = 0.0, None
    driver = Guests()
    reachability = Reachability(driver, SILENT_SECONDS, lambda: now)
    for seconds, answers in steps:
        now += seconds
        driver.answering[ONE] = bool(answers)
        asyncio.run(reachability.check(holding() if answers is None else holding(ONE)))
        silent_since = None if answers is not False else now if silent_since is None else silent_since
        assert reachability.is_unreachable(ONE) == (silent_since is not None and now - silent_since >= SILENT_SECONDS)


def test_guests_are_apart_and_one_that_is_stopped_is_not_asked() -> None:
    now = 0.0
    driver = Guests()
    driver.answering = {ONE: False, TWO: True}
    reachability = Reachability(driver, SILENT_SECONDS, lambda: now)
    for now in (0.0, SILENT_SECONDS):  # noqa: B007 - the clock reads it
        asyncio.run(reachability.check(holding(ONE, TWO, stopped=uuid.UUID(int=3))))
    assert reachability.is_unreachable(ONE)
    assert not reachability.is_unreachable(TWO)
    assert set(driver.asked) == {ONE, TWO}


@pytest.mark.parametrize(("driver", "seconds"), [(Guests(), 0.0), (NoopDriver("127.0.0.1"), SILENT_SECONDS)])
def test_without_a_bound_or_a_driver_that_can_say_none_is_unreachable(driver: NoopDriver, seconds: float) -> None:
    reachability = Reachability(driver, seconds, lambda: 10**9)
    for _ in range(2):
        asyncio.run(reachability.check(holding(ONE)))
    assert not reachability.is_unreachable(ONE)
    assert reachability.pause_seconds == CHECK_SECONDS_MAX
    assert getattr(driver, "asked", []) == []


@asynccontextmanager
async def saying(text: bytes) -> AsyncIterator[int]:
    """A port at which a server says the text and then nothing."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        await ended.wait()
        writer.close()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        ended.set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"SSH-2.0-x\r\n", True),
        (b"a banner\r\nSSH-2.0-x\r\n", True),
        (b"", False),
        (b"SSH", False),
        (b"HTTP/1.1 400\r\n", False),
        (b"x" * 100_000 + b"\n", False),
        (b"line\n" * GREETING_LINES_MAX + b"SSH-2.0-x\r\n", False),
    ],
    ids=["greets", "greets after a banner", "silent", "half a greeting", "another server", "floods", "talks on"],
)
def test_what_greets(text: bytes, expected: bool) -> None:
    async def ask() -> bool:
        async with saying(text) as port:
            return await greets("127.0.0.1", port, 0.5)

    assert asyncio.run(ask()) is expected


def test_a_closed_port_does_not_greet() -> None:
    async def ask() -> bool:
        async with saying(b"") as port:
            pass
        return await greets("127.0.0.1", port, 5.0)

    assert not asyncio.run(ask())
