"""The orderly stop of a process that serves: whatever it has accepted is answered, and nothing waits without a bound.

| seconds after the signal | what happens |
|---|---|
| 0 | each listener accepts what has connected and no more; responses say `Connection: close` |
| 0 | long polls, streams, sockets and consoles get their last message |
| 0.2 | connections without a request are closed |
| 0.5, 1, and so on | those that only wait for the end that their peers send are cut off |
| `STREAMS_SECONDS_MAX` | streams and sockets whose clients do not read are cut off |
| `graceful_stop_seconds` | statements that the database has not answered are abandoned: their callers get their 503 |
| `LAST_ANSWERS_SECONDS` later (`listeners.py`) | what still runs is cancelled |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
import uvicorn

from berth.process.database_connections import abandon_statements
from orchestrator.edge.accepting import AcceptingServer
from orchestrator.edge.console_listener import ConsoleListener
from orchestrator.http.services import Services

LAST_MESSAGES_SECONDS_MAX = 1.0
"""How long a stop waits until every stream and socket has sent its last message."""
STREAMS_SECONDS_MAX = 3.0
"""How long a client may take to read it."""
ABANDONED_AFTER_SECONDS = 0.5
"""How long the database may take for an answer once the time for requests is over."""
LOOK_SECONDS = 0.1
CLOSING_SECONDS = 0.5
"""How long a connection without a request may at least wait for its peer's end of TLS."""

log = structlog.get_logger("orchestrator")


class OrderlyStop:
    """Stops the listeners of a process. `seconds`: how long requests may run on."""

    def __init__(
        self, services: Services, servers: Sequence[uvicorn.Server], consoles: ConsoleListener | None, seconds: float
    ) -> None:
        self._services = services
        self._servers = servers
        self._consoles = consoles
        self._seconds = seconds
        self._cutting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Stop; returns when the process ends, so that a statement that is not answered never outlasts it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        accepting = [each for each in self._servers if isinstance(each, AcceptingServer)]
        self._cutting = asyncio.create_task(_cut_closing(accepting))
        try:
            await asyncio.gather(*(server.stop_accepting() for server in accepting), self._end_streams())
        finally:
            if self._consoles is not None:
                self._consoles.stop()
            for server in self._servers:
                server.should_exit = True
        await asyncio.sleep(began + STREAMS_SECONDS_MAX - loop.time())
        for server in accepting:
            server.cut_streams()
        await asyncio.sleep(began + self._seconds - loop.time())
        while True:
            abandoned = abandon_statements(ABANDONED_AFTER_SECONDS)
            if abandoned:
                log.warning("statements_abandoned", count=abandoned)
            await asyncio.sleep(LOOK_SECONDS)

    async def _end_streams(self) -> None:
        """Streams end before their listener, which would cut off those that have not sent their last message."""
        services = self._services
        services.dispatcher.close()
        await asyncio.gather(
            services.feed.close(LAST_MESSAGES_SECONDS_MAX), services.consoles.close(LAST_MESSAGES_SECONDS_MAX)
        )


async def _cut_closing(servers: Sequence[AcceptingServer]) -> None:
    """For as long as the process lasts."""
    while True:
        await asyncio.sleep(CLOSING_SECONDS)
        for server in servers:
            server.cut_closing()
