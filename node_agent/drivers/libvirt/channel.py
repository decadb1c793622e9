"""The channel on which a guest says that it is ready and that its first boot has ended: lines of text over virtio-serial.

QEMU serves one client at a time, and what it has passed on to a client that closes is lost: the connection that read the first
message is kept for the second one.
"""

from __future__ import annotations

import asyncio
import re

from node_agent.wire.first_boot import FirstBoot, FirstBootStatus, printable

LINE_BYTES_MAX = 4096
CHANNEL_BYTES_MAX = 64 * 1024
LINES_PER_TURN = 64
"""Lines after which others get a turn: reading what is in the buffer does not suspend, and the guest may have filled it."""
# `cloud-init status --long` (cloudinit.readthedocs.io, "CLI commands"): exit status 0 done, 1 failed, 2 recovered from errors.
# Seeds of the version before sent no exit status.
MESSAGE_PREFIX = "BERTH-USER-DATA "
_ENDED = re.compile(rf"{MESSAGE_PREFIX}(?P<nonce>\S+) (?:(?P<exit>\d{{1,3}}) )?(?P<said>.*)", re.DOTALL)


class GuestChannel:
    """One open connection to a guest's channel. At most `CHANNEL_BYTES_MAX` are read from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._heard = 0
        self._lines = 0

    @classmethod
    async def open(cls, socket: str) -> GuestChannel:
        """Connect to QEMU's socket. Raises OSError."""
        return cls(*await asyncio.open_unix_connection(socket, limit=LINE_BYTES_MAX))

    async def line(self) -> str | None:
        """The next line without its end; None once the guest has ended.

        Raises OSError, and ValueError if a line or all lines together are too long.
        """
        raw = await self._reader.readline()
        self._heard += len(raw)
        self._lines += 1
        if self._lines % LINES_PER_TURN == 0:
            await asyncio.sleep(0)
        if self._heard > CHANNEL_BYTES_MAX:
            raise ValueError(
                "the guest says much on its channel, but not that it is ready, nor that its first boot has ended"
            )
        return raw.decode(errors="replace").strip() if raw else None

    def close(self) -> None:
        """Close it; what the guest says from now on waits in the guest."""
        self._writer.close()


def ready_message(nonce: str) -> str:
    """The line of a guest that is ready."""
    return f"BERTH-READY {nonce}"


def first_boot_of(line: str, nonce: str) -> FirstBoot | None:
    """How the first boot ended, by a line of the guest; None for a line that is not its message with this nonce."""
    found = _ENDED.fullmatch(line)
    if found is None or found["nonce"] != nonce:
        return None
    said, code = found["said"], found["exit"] or "0"
    if code == "1" or "status: error" in said:
        status = FirstBootStatus.ERROR
    elif code == "2" or "extended_status: degraded" in said:
        status = FirstBootStatus.DEGRADED
    elif code == "0" and "status: done" in said:
        status = FirstBootStatus.DONE
    else:
        status = FirstBootStatus.UNKNOWN
    return FirstBoot(status=status, detail=printable(said))
