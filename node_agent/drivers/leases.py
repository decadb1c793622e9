"""Leases: one file per slot, linked into its place if there is none.

Two allocations cannot hold a slot even if the control plane errs.

A lease expires unless it is renewed, and is renewed for as long as anything of its allocation is there; then it is
cleared (`tend`). Expiry is counted on the clock since boot and names the boot, so a wall clock that jumps and a node
that a restart does not confuse leases.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from pydantic import ValidationError

from berth.process.durable_directories import sync_directory
from node_agent.clock import boot_seconds
from node_agent.drivers.contract import DriverFailure
from node_agent.protocol import FailureCode
from node_agent.wire.fields import Closed

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


class Lease(Closed):
    """The holder of a slot, and under which fence it was taken; which agent process renewed it last, in which boot, and
    until which second of it the lease holds."""

    allocation_id: UUID
    fence: int
    agent: str = ""
    boot_id: str = ""
    expires_at_boot_seconds: float = 0.0


class Leases:
    """The directory `leases/` of one node, written by one process. `lease_seconds` is the duration of a lease."""

    def __init__(self, directory: Path, lease_seconds: float) -> None:
        """Raises OSError if the kernel does not say which boot this is."""
        self._directory = directory
        self._lease_seconds = lease_seconds
        self._agent = uuid.uuid4().hex
        self._boot_id = BOOT_ID_FILE.read_text().strip()

    def take(self, slots: Sequence[int], allocation_id: UUID, fence: int) -> None:
        """Take all of `slots` or none. Raises DriverFailure(LEASE_CONFLICT) naming the holder."""
        taken: list[Path] = []
        content = self._renewed(allocation_id, fence).model_dump_json().encode()
        try:
            for slot in sorted(slots):
                path = self._path(slot)
                self._create(path, content, slot)
                taken.append(path)
            sync_directory(self._directory)
        except BaseException:
            for path in taken:
                path.unlink(missing_ok=True)
            raise

    def drop(self, allocation_id: UUID) -> list[int]:
        """Give up whatever `allocation_id` holds, and nothing else; the slots given up. Raises OSError."""
        dropped = [slot for slot, lease in self.held().items() if lease.allocation_id == allocation_id]
        for slot in dropped:
            self._path(slot).unlink(missing_ok=True)
        if dropped:
            sync_directory(self._directory)
        return dropped

    def held(self) -> dict[int, Lease]:
        """Every lease by slot. An unreadable lease (torn by a power failure before its effect) has no holder."""
        return {slot: lease for slot, lease in self._found().items() if lease is not None}

    def tend(self, in_use: Callable[[UUID], bool]) -> dict[int, Lease | None]:
        """Renew the leases of allocations that are `in_use`, clear the dead ones; those cleared, by slot.

        Dead is a lease of an allocation that is not in use, if the lease has expired or an earlier process held it, and
        one that cannot be read. Raises OSError.
        """
        cleared: dict[int, Lease | None] = {}
        for slot, lease in self._found().items():
            if lease is not None and in_use(lease.allocation_id):
                self._replace(slot, self._renewed(lease.allocation_id, lease.fence))
            elif lease is None or self._over(lease):
                self._path(slot).unlink(missing_ok=True)
                cleared[slot] = lease
        if cleared:
            sync_directory(self._directory)
        return cleared

    def _over(self, lease: Lease) -> bool:
        earlier = lease.agent != self._agent or lease.boot_id != self._boot_id
        return earlier or boot_seconds() >= lease.expires_at_boot_seconds

    def _renewed(self, allocation_id: UUID, fence: int) -> Lease:
        return Lease(
            allocation_id=allocation_id,
            fence=fence,
            agent=self._agent,
            boot_id=self._boot_id,
            expires_at_boot_seconds=boot_seconds() + self._lease_seconds,
        )

    def _found(self) -> dict[int, Lease | None]:
        paths = sorted(self._directory.glob("slot-*.json"))
        return {int(path.stem.removeprefix("slot-")): self._read(path) for path in paths}

    def _replace(self, slot: int, lease: Lease) -> None:
        # The directory is not synced: what a power failure undoes is the expiry of a lease of an earlier boot. Of a file that is
        # not synced it could leave the name without the content, and a lease that cannot be read is cleared.
        aside = self._aside(slot)
        try:
            _write_synced(aside, lease.model_dump_json().encode())
            aside.replace(self._path(slot))
        finally:
            aside.unlink(missing_ok=True)

    def _aside(self, slot: int) -> Path:
        return self._directory / f".slot-{slot}.new"

    def _create(self, path: Path, content: bytes, slot: int) -> None:
        if path.exists() and self._read(path) is None:
            path.unlink(missing_ok=True)
        # Linked when it is whole: a full disk or a crash leaves no lease without a holder.
        aside = self._aside(slot)
        try:
            _write_synced(aside, content)
            path.hardlink_to(aside)
        except FileExistsError as error:
            holder = self._read(path)
            held_by = f"allocation {holder.allocation_id} under fence {holder.fence}" if holder else "an unknown holder"
            raise DriverFailure(FailureCode.LEASE_CONFLICT, f"slot {slot} is leased to {held_by}") from error
        finally:
            aside.unlink(missing_ok=True)

    def _read(self, path: Path) -> Lease | None:
        try:
            return Lease.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _path(self, slot: int) -> Path:
        return self._directory / f"slot-{slot}.json"


def _write_synced(file: Path, content: bytes) -> None:
    with file.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())


def listed(slots: Sequence[int]) -> str:
    """Slots as a sentence names them."""
    return ", ".join(map(str, slots))


async def take_over(
    leases: Leases, slots: Sequence[int], allocation_id: UUID, fence: int, tend: Callable[[], Awaitable[list[int]]]
) -> None:
    """Take the slots, in place of any earlier lease of the allocation. Raises DriverFailure.

    After a conflict `tend` clears a dead lease, so that the next attempt finds the slot free.
    """
    try:
        leases.drop(allocation_id)
        leases.take(slots, allocation_id, fence)
    except DriverFailure:
        with suppress(OSError):
            await tend()
        raise
    except OSError as error:
        raise DriverFailure(FailureCode.DRIVER_ERROR, f"the lease cannot be written: {error}") from error
