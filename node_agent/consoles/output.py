"""What a guest writes to its console, kept until it is sent: bounded, and the guest never waits for a tenant."""

from __future__ import annotations

import asyncio
import errno
import os

from node_agent.wire.console import FRAME_BYTES_MAX

KEPT_BYTES_MAX = 256 * 1024
READ_BYTES_MAX = 1024 * 1024
"""Bytes read in one `TURN_SECONDS`; a guest beyond it fills the buffers between it and the agent, not the agent's time."""
TURN_SECONDS = 0.1


class GuestOutput:
    """Reads a descriptor into a bounded buffer. What finds no room is dropped and counted. Call it from one event loop."""

    def __init__(self, descriptor: int, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._kept_bytes_max = kept_bytes_max
        self._kept = bytearray()
        self._dropped = 0
        self._dropped_unsent = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._left = READ_BYTES_MAX
        self._turn: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """Bytes dropped so far."""
        return self._dropped

    def start(self) -> None:
        """Begin to read."""
        os.set_blocking(self._descriptor, False)
        self._take_turn()

    def stop(self) -> None:
        """Read no more."""
        if self._turn is not None:
            self._turn.cancel()
        self._loop.remove_reader(self._descriptor)

    async def next(self) -> tuple[bytes, int] | None:
        """The next bytes, at most one frame, and how many were dropped before them; None when the guest's console is gone."""
        while not self._kept and not self._dropped_unsent:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        # What is kept is older than what was dropped.
        data = bytes(self._kept[:FRAME_BYTES_MAX])
        del self._kept[:FRAME_BYTES_MAX]
        dropped = 0
        if not self._kept:
            dropped, self._dropped_unsent = self._dropped_unsent, 0
        return data, dropped

    def _take_turn(self) -> None:
        self._left = READ_BYTES_MAX
        self._loop.add_reader(self._descriptor, self._read)
        self._turn = self._loop.call_later(TURN_SECONDS, self._take_turn)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, FRAME_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EBADF, errno.ECONNRESET):
                raise
            data = b""  # a pseudo-terminal without another side
        if not data:
            self._ended = True
            self.stop()
        # Once something was dropped, nothing is kept until the gap is sent: it is between what is kept and what follows.
        room = 0 if self._dropped_unsent else self._kept_bytes_max - len(self._kept)
        self._kept += data[:room]
        lost = max(0, len(data) - room)
        self._dropped += lost
        self._dropped_unsent += lost
        self._changed.set()
        self._left -= len(data)
        if self._left <= 0 and not self._ended:
            self._loop.remove_reader(self._descriptor)
