"""The relay process: wait for the servers, run sequencing and publishing, stop in order."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import structlog

from berth.process.health_server import serve_health
from outbox_relay import postgres
from outbox_relay.link import NatsLink
from outbox_relay.metrics import Metrics
from outbox_relay.problems import RelayProblem, ServerUnavailable
from outbox_relay.publishing import Publisher
from outbox_relay.sequencing import Sequencer
from outbox_relay.settings import Settings
from outbox_relay.state import LogHead, RelayState

STARTUP_LOOK_SECONDS = 0.25
SILENCE_LOOK_SECONDS = 1.0
# What each step gets to end by itself after SIGTERM; whatever it was doing, nothing is lost if it does not.
STOP_SECONDS_MAX = 1.5

log = structlog.get_logger("relay")


class Relay:
    """Both steps in one process. `run` returns after SIGTERM or SIGINT; it raises when a step cannot go on.

    Publishing that would harm the stream is stopped and not the process: `/ok` says why, and sequencing goes on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.state = RelayState()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises RelayProblem, or the exception that ended a step."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        settings = self._settings
        with serve_health(
            settings.metrics_host, settings.metrics_port, self.metrics.registry, self.state.report
        ) as port:
            log.info("starting", database=postgres.place(settings.database_url), metrics_port=port)
            stopped = asyncio.create_task(stopping.wait())
            working = asyncio.create_task(self._work())
            await asyncio.wait({stopped, working}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if working.done():
                await working
                raise RelayProblem("a step of the relay ended without a reason")
            working.cancel()
            with suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.wait_for(working, STOP_SECONDS_MAX)
            log.info("stopped")

    async def _work(self) -> None:
        settings = self._settings
        address = postgres.bounded_address(settings.database_url, "startup")
        await self._wait_for("PostgreSQL", postgres.place(settings.database_url), lambda: postgres.probe(address))
        head = LogHead()
        loop = asyncio.get_running_loop()
        stopping = threading.Event()
        sequencer = Sequencer(settings, self.metrics, self.state, lambda version: _tell(loop, head, version), stopping)
        sequencing, thread = _in_thread(sequencer.run, "sequencing")
        publishing = asyncio.create_task(self._publish(head))
        watching = asyncio.create_task(_watch(sequencer))
        try:
            # A step that dies takes the process with it: a relay that only sequences, or only publishes, hides a fault.
            done, _ = await asyncio.wait({sequencing, publishing, watching}, return_when=asyncio.FIRST_COMPLETED)
            for step in done:
                await step
        finally:
            stopping.set()
            publishing.cancel()
            watching.cancel()
            await asyncio.wait({publishing, watching}, timeout=STOP_SECONDS_MAX)
            await asyncio.to_thread(thread.join, STOP_SECONDS_MAX / 2)

    async def _publish(self, head: LogHead) -> None:
        self.state.publishing = "waiting for nats"
        await self._wait_for("NATS", _nats_place(self._settings.nats_url), self._probe_nats)
        await Publisher(self._settings, self.metrics, self.state, head).run()

    async def _probe_nats(self) -> str | None:
        try:
            async with NatsLink.connected(self._settings) as link:
                await link.stream()
        except ServerUnavailable as error:
            return error.why
        return None

    async def _wait_for(self, server: str, where: str, probe: Callable[[], Awaitable[str | None]]) -> None:
        deadline = time.monotonic() + self._settings.relay_startup_seconds_max
        said = False
        while (why := await probe()) is not None:
            if time.monotonic() >= deadline:
                seconds = self._settings.relay_startup_seconds_max
                raise RelayProblem(f"{server} at {where} was not ready within {seconds:.0f} s: {why}")
            if not said:
                log.info("waiting", server=server, where=where, why=why)
                said = True
            await asyncio.sleep(STARTUP_LOOK_SECONDS)


async def _watch(sequencer: Sequencer) -> None:
    """Free the sequencing thread, each time that Postgres is silent for too long."""
    while True:
        await asyncio.sleep(SILENCE_LOOK_SECONDS)
        sequencer.abandon_if_silent(time.monotonic())


def _tell(loop: asyncio.AbstractEventLoop, head: LogHead, version: int) -> None:
    """Pass a new head from the sequencing thread to the event loop."""
    with suppress(RuntimeError):  # the loop is closed: we are stopping
        loop.call_soon_threadsafe(head.advance, version)


def _in_thread(run: Callable[[], None], name: str) -> tuple[asyncio.Future[None], threading.Thread]:
    """Start `run` in a daemon thread; its end, or its error, becomes the future's."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def body() -> None:
        failure: BaseException | None = None
        try:
            run()
        except Exception as error:  # noqa: BLE001 - handed over, not handled
            failure = error
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, failure)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return future, thread


def _nats_place(url: str) -> str:
    """Hosts and ports of the NATS address, without its secrets."""
    parts = (urlsplit(server.strip()) for server in url.split(","))
    return ", ".join(f"{part.hostname}:{part.port or 4222}" for part in parts)
