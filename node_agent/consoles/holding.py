"""An open console, held by one task: a driver that hangs holds up that task and no session."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import structlog

log = structlog.get_logger("node_agent.consoles")


class Holder:
    """Opens a console at once and holds it until `release`. `opened` is its descriptor, or raises what opening it raised."""

    def __init__(self, console: AbstractAsyncContextManager[int]) -> None:
        self.opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # A session that has ended meanwhile does not ask why it was not opened.
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self._released = asyncio.Event()
        self.task = asyncio.create_task(self._hold(console))

    def release(self) -> None:
        """Close it as soon as it is open."""
        self._released.set()

    async def closed(self, seconds_max: float) -> bool:
        """Whether it is closed, or was not opened, within `seconds_max`."""
        done, _ = await asyncio.wait({self.task}, timeout=max(0.0, seconds_max))
        return bool(done)

    async def _hold(self, console: AbstractAsyncContextManager[int]) -> None:
        try:
            async with console as descriptor:
                self.opened.set_result(descriptor)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001 - the session that waits for it judges it
            if self.opened.done():
                log.warning("console_not_closed", why=str(error))
            else:
                self.opened.set_exception(error)
        finally:
            self.opened.cancel()
