"""Listens to guests for the end of their first boot, and records it: once for each disk, whatever the guest says afterwards.

Readiness does not wait for it. A guest whose user data never end stays `pending`. The message is repeated by the guest, so one
that an agent had read and not recorded when it was killed is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from node_agent.drivers.libvirt.channel import MESSAGE_PREFIX, GuestChannel, first_boot_of
from node_agent.drivers.libvirt.readiness import await_message
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.drivers.threads import in_thread
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus

log = structlog.get_logger("node_agent.first_boot")

RETRY_SECONDS = 5.0
MESSAGES_MAX = 64
"""Of one connection: for each the record is read. A guest repeats its message three times at each boot."""


class FirstBoots:
    """One listener for each guest whose first boot has not ended. Call it from one event loop."""

    def __init__(
        self,
        find_socket: Callable[[UUID], Awaitable[str]],
        processes_of: Callable[[Path], list[int]],
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`find_socket`: of a guest's channel; `processes_of`: those of QEMU that name a guest's directory."""
        self._find_socket = find_socket
        self._processes_of = processes_of
        self._retry_seconds = retry_seconds
        self._listeners: dict[UUID, asyncio.Task[None]] = {}

    async def await_ready(self, directory: GuestDirectory, seconds_max: float) -> None:
        """Return when the guest has said that it is ready; its channel is listened to from then on. Raises NotReady."""
        record, allocation_id = directory.load(), directory.allocation_id
        assert record is not None
        assert allocation_id is not None
        channel = await await_message(partial(self._find_socket, allocation_id), record.nonce, seconds_max)
        await self.listen(directory, channel)

    async def listen(self, directory: GuestDirectory, channel: GuestChannel | None = None) -> None:
        """Listen to the guest on `channel`, in place of an earlier listener; without it, on a new one unless there is a listener.

        Does nothing for a guest whose first boot has ended or that has no cloud-init; `channel` is then closed.
        """
        record = directory.load()
        allocation_id = directory.allocation_id
        assert allocation_id is not None
        earlier = self._listeners.get(allocation_id)
        if channel is None and earlier is not None:
            return
        await self.cease(allocation_id)
        if record is None or not record.cloud_init or not _is_open(record.first_boot):
            if channel is not None:
                channel.close()
            return
        self._listeners[allocation_id] = listener = asyncio.create_task(self._listened(directory, channel))
        listener.add_done_callback(partial(self._forget, allocation_id))

    async def cease(self, allocation_id: UUID) -> None:
        """End the listener of the guest, if there is one."""
        listener = self._listeners.get(allocation_id)
        if listener is not None:
            listener.cancel()
            await asyncio.wait((listener,))

    async def close(self) -> None:
        """End every listener."""
        for allocation_id in list(self._listeners):
            await self.cease(allocation_id)

    def _forget(self, allocation_id: UUID, ended: asyncio.Task[None]) -> None:
        if self._listeners.get(allocation_id) is ended:
            del self._listeners[allocation_id]

    async def _listened(self, directory: GuestDirectory, channel: GuestChannel | None) -> None:
        try:
            _save(directory, FirstBoot(status=FirstBootStatus.PENDING))  # of an agent of the version before
            while not await self._heard(directory, channel):
                channel = None
                await asyncio.sleep(self._retry_seconds)
        except Exception:
            # The status stays as it is: a guest is usable without it.
            log.exception("first_boot_not_heard", allocation=directory.path.name)

    async def _heard(self, directory: GuestDirectory, channel: GuestChannel | None) -> bool:
        """Whether there is nothing more to hear; False if the connection could not be made."""
        try:
            if channel is None:
                assert directory.allocation_id is not None
                channel = await GuestChannel.open(await self._find_socket(directory.allocation_id))
            await _heard_all(directory, channel)
            return True
        except ValueError as error:
            _save(directory, FirstBoot(status=FirstBootStatus.UNKNOWN, detail=str(error)))
            return True
        except (OSError, LookupError) as error:
            log.warning("first_boot_channel_closed", allocation=directory.path.name, why=str(error))
            return not await in_thread(partial(self._processes_of, directory.path))
        finally:
            if channel is not None:
                channel.close()


async def _heard_all(directory: GuestDirectory, channel: GuestChannel) -> None:
    """Read until the message of the guest's present disk, which is recorded, or until QEMU has ended.

    The next start listens again.
    Raises OSError and ValueError as `GuestChannel.line`, and ValueError for too many messages of no disk.
    """
    messages = 0
    while (line := await channel.line()) is not None:
        if not line.startswith(MESSAGE_PREFIX):
            continue
        messages += 1
        if messages > MESSAGES_MAX:
            raise ValueError(f"the guest has repeated its message {MESSAGES_MAX} times, but never that of its disk")
        record = directory.load()
        ended = None if record is None else first_boot_of(line, record.nonce)
        if ended is not None:
            _save(directory, ended)
            return


def _save(directory: GuestDirectory, found: FirstBoot) -> None:
    # Without an await between: nothing else writes the record meanwhile.
    record = directory.load()
    if record is None or record.state == "releasing" or not _is_open(record.first_boot) or record.first_boot == found:
        return
    directory.save(record.model_copy(update={"first_boot": found}))
    if not _is_open(found):
        log.info("first_boot_ended", allocation=directory.path.name, status=found.status.value, detail=found.detail)


def _is_open(found: FirstBoot | None) -> bool:
    return found is None or found.status is FirstBootStatus.PENDING
