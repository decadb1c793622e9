"""`/live` of a process whose health a thread serves: 503 once its event loop has run nothing for long, 200 while it is busy."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry

from berth.process.health_server import FROZEN_SECONDS, serve_health
from berth.process.loop_pulse import LoopPulse
from tests.metrics_ports import get
from tests.support.waiting import wait_for


class Served:
    """A health server in the event loop of another thread, which a test can freeze."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port = port
        self._loop = loop
        self._thaw = threading.Event()

    def freeze(self) -> None:
        """Block the event loop until `thaw`."""
        frozen = threading.Event()

        def block() -> None:
            frozen.set()
            self._thaw.wait()

        self._loop.call_soon_threadsafe(block)
        assert frozen.wait(10)

    def thaw(self) -> None:
        """Let it turn again."""
        self._thaw.set()

    def live(self) -> tuple[int, bool]:
        """Status and body of `/live`."""
        status, body = get(self.port, "/live")
        return status, json.loads(body)["live"]


@contextmanager
def served(frozen_seconds: float) -> Iterator[Served]:
    """A health server whose process is unready throughout."""
    started: list[Served] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        with serve_health(
            "127.0.0.1", 0, CollectorRegistry(), lambda: {"ok": False}, frozen_seconds=frozen_seconds
        ) as port:
            assert port is not None
            started.append(Served(port, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    (found,) = started
    try:
        yield found
    finally:
        found.thaw()
        found._loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def test_a_process_that_is_not_ready_is_live() -> None:
    with served(FROZEN_SECONDS) as process:
        assert get(process.port, "/ok")[0] == 503
        assert process.live() == (200, True)


def test_a_frozen_loop_is_not_live_and_one_that_turns_again_is() -> None:
    with served(0.3) as process:
        assert process.live() == (200, True)
        process.freeze()
        wait_for(lambda: process.live() == (503, False), "the frozen loop to be noticed", 10.0)
        assert get(process.port, "/ok")[0] == 503, "the port answers all the same"
        process.thaw()
        wait_for(lambda: process.live() == (200, True), "the loop to be live again", 10.0)


def test_a_busy_loop_is_live_for_as_long_as_its_bound() -> None:
    with served(3600.0) as process:
        process.freeze()
        for _ in range(20):
            assert process.live() == (200, True)


def test_a_process_without_an_event_loop_is_live_while_it_answers() -> None:
    with serve_health("127.0.0.1", 0, CollectorRegistry(), lambda: {"ok": False}) as port:
        assert port is not None
        assert get(port, "/live")[0] == 200


def test_questions_about_a_loop_leave_one_callback_waiting() -> None:
    """However often liveness is asked, and the wait is that of the oldest."""
    seconds = 0.0
    loop = asyncio.new_event_loop()
    waiting: list[object] = []
    loop.call_soon_threadsafe = lambda run, *_, **__: waiting.append(run)  # type: ignore[method-assign, assignment]
    pulse = LoopPulse(loop, lambda: seconds)
    for seconds in (0.0, 10.0, 20.0):
        assert pulse.silent_seconds() == seconds
    assert len(waiting) == 1
    loop.close()


def test_a_closed_loop_is_not_live() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert LoopPulse(loop).silent_seconds() == pytest.approx(float("inf"))
