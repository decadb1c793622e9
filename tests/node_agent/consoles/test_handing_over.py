"""A console has one client at a time: a newer session waits for the older one, and a driver that hangs holds up no session."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from node_agent.clock import ServerClock
from node_agent.consoles.consoles import Consoles, Session
from node_agent.consoles.dialing import Link
from node_agent.drivers.contract import Driver
from node_agent.metrics import AgentMetrics
from node_agent.wire.console import END, ConsoleParameters, read_frame

SECONDS_MAX = 30.0


class OneClient:
    """A driver whose console refuses a second client, and lets the first go only after other work had its turn."""

    def __init__(self) -> None:
        self.clients = 0
        self.calls = 0
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    @asynccontextmanager
    async def attach(self, allocation_id: uuid.UUID) -> AsyncIterator[int]:
        self.calls += 1
        self.asked.set()
        await self.answers.wait()
        if self.clients:
            raise OSError("another client has it open")
        ours, theirs = socket.socketpair()
        self.clients += 1
        try:
            ours.sendall(b"guest")
            yield theirs.fileno()
        finally:
            # As libvirt's close in a thread: other work has its turn meanwhile.
            await asyncio.to_thread(ours.fileno)
            self.clients -= 1
            ours.close()
            theirs.close()


class Attending:
    """A session under way, and the other end of its link."""

    def __init__(self, consoles: Consoles, allocation_id: uuid.UUID, fence: int, seconds: float = 60.0) -> None:
        self.session = Session(fence)
        self._ours, self._theirs = socket.socketpair()
        self._consoles = consoles
        self._expires_at = datetime.now(UTC) + timedelta(seconds=seconds)
        self._order = ConsoleParameters(
            session_id=uuid.uuid4(), allocation_id=allocation_id, mode="attach", host="127.0.0.1", port=1,
            secret_sha256="0" * 64, dial_until=self._expires_at,
        )  # fmt: skip
        self.task: asyncio.Task[Any] = asyncio.create_task(self._serve())

    async def _serve(self) -> str:
        reader, writer = await asyncio.open_connection(sock=self._theirs)
        try:
            report = await self._consoles.attach(self.session, self._expires_at, self._order, Link(reader, writer))
            return report.reason
        finally:
            writer.close()

    async def heard(self) -> list[Any]:
        """What is sent, to the end: pieces of output, then the reason."""
        reader, writer = await asyncio.open_connection(sock=self._ours)
        found: list[Any] = []
        while (one := await read_frame(reader)) is not None:
            found.append(json.loads(one[1])["reason"] if one[0] == END else one[1])
        writer.close()
        return found


def consoles_of(driver: OneClient) -> Consoles:
    clock = ServerClock()
    clock.observe(datetime.now(UTC))
    return Consoles(cast("Driver", driver), clock, AgentMetrics(), lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def attended(driver: OneClient) -> None:
    """Return when the driver was asked for a console."""
    async with asyncio.timeout(SECONDS_MAX):
        await driver.asked.wait()
    driver.asked.clear()


def test_a_newer_session_opens_the_console_when_the_older_one_has_closed_it() -> None:
    async def scenario() -> None:
        driver, allocation = OneClient(), uuid.uuid4()
        consoles = consoles_of(driver)
        first = Attending(consoles, allocation, 1)
        await attended(driver)
        second = Attending(consoles, allocation, 2)
        await attended(driver)
        third = Attending(consoles, allocation, 3)
        async with asyncio.timeout(SECONDS_MAX):
            assert await first.task == await second.task == "superseded"
            await attended(driver)
            consoles.end(allocation)
            assert await third.task == "guest_ended"
            assert (await third.heard())[-1] == "guest_ended"
        assert driver.clients == 0

    asyncio.run(scenario())


def test_a_console_that_does_not_open_ends_with_its_session_and_is_not_opened_again() -> None:
    async def scenario() -> None:
        driver, allocation = OneClient(), uuid.uuid4()
        driver.answers.clear()
        consoles = consoles_of(driver)
        async with asyncio.timeout(SECONDS_MAX):
            assert await Attending(consoles, allocation, 1, seconds=0.2).task == "deadline"
            assert await Attending(consoles, allocation, 2, seconds=0.2).task in ("deadline", "no_console")
            assert driver.calls == 1, "a driver that hangs gets no second call"
            driver.asked.clear()
            released = Attending(consoles, uuid.uuid4(), 3)
            await attended(driver)
            driver.answers.set()
            last = Attending(consoles, allocation, 4)
            released.session.end("tenant_ended")
            assert await released.task == "tenant_ended"
            last.session.end("tenant_ended")
            assert await last.task == "tenant_ended"

    asyncio.run(scenario())
