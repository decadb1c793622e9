"""State shared by the relay's loops and the health endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from berth.process.json_objects import JsonObject

WAITING_FOR_RESTORE = "waiting until `berth restore run` has finished"
STORES_NOTHING = "waiting for nats, which answers and stores nothing: make room on its disk and restart it"


@dataclass(frozen=True)
class Stopped:
    """Why publishing has stopped: a stable word, and a sentence that says what to do."""

    reason: str
    why: str


@dataclass
class RelayState:
    """The state of each step, as text; written by its loop, read by the health server's thread.

    `stopped` is not None while publishing further would damage the stream.
    """

    sequencing: str = "waiting for postgres"
    publishing: str = "waiting for postgres"
    stores_nothing: bool = False
    stopped: Stopped | None = None

    def is_ok(self) -> bool:
        """Both steps reach their servers, and NATS stores what it is given."""
        reached = self.sequencing == "running" and self.publishing in {"publisher", "standing by"}
        return reached and not self.stores_nothing

    def report(self) -> JsonObject:
        """Return the body of `/ok`."""
        publishing = STORES_NOTHING if self.stores_nothing else self.publishing
        state: JsonObject = {"ok": self.is_ok(), "sequencing": self.sequencing, "publishing": publishing}
        stopped = self.stopped
        return state if stopped is None else {**state, "stopped": {"reason": stopped.reason, "why": stopped.why}}


@dataclass
class LogHead:
    """The newest version known to this process; tasks of one event loop can wait for a newer one."""

    version: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self, version: int) -> None:
        """The log reaches at least to `version`."""
        if version > self.version:
            self.version = version
            self._moved.set()

    async def wait_beyond(self, version: int, seconds_max: float) -> None:
        """Return when the log is known to reach beyond `version`, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self.version <= version:
                    self._moved.clear()
                    await self._moved.wait()
