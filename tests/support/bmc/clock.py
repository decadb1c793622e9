"""A clock that moves only when the client waits."""

from __future__ import annotations

from tests.support.waiting import let_others_run


class VirtualClock:
    """Seconds of a test: `sleep` moves them on and returns at once."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await let_others_run()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
