"""The thin volumes of one agent in a pool of LVM: found by name and tags, made within a bound, activated, removed.

Everything blocks: call it in a thread. LVM locks the volume group, so a program that an earlier agent left is waited for.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from node_agent.drivers.libvirt.disk_pool.contents import (
    MADE,
    Contents,
    PoolName,
    PoolState,
    Volume,
    device_of,
    look,
    owner_tag,
    volume_name,
)
from node_agent.drivers.libvirt.disk_pool.lvm import CONFIG, SECONDS_MAX, PoolError, run

FRESH_SECONDS = 30.0
"""How old the contents may be that heartbeats report: nothing but this agent changes its volumes."""


class PoolShort(PoolError):
    """The pool has no room for the disk; nothing was made."""


class VolumeInUse(PoolError):
    """A program has the volume open, or another volume shares its blocks."""


@dataclass(frozen=True)
class PoolSettings:
    """Of an agent with `BERTH_LIBVIRT_DISK_POOL`. `overcommit`: the sizes of all volumes may be so many times the pool's."""

    name: PoolName
    overcommit: float = 1.0
    seconds_max: float = SECONDS_MAX


class DiskPool:
    """The pool, and the volumes of the agent whose directories of allocations are below `allocations`."""

    def __init__(self, settings: PoolSettings, allocations: Path) -> None:
        self.settings = settings
        self.name = settings.name
        self._owner = owner_tag(allocations)
        self._making = threading.Lock()
        self._changes = 0
        self._seen: tuple[int, float, Contents] | None = None
        self._was_full = False

    @property
    def state(self) -> PoolState | None:
        """The pool as LVM was last asked, or None."""
        return None if self._seen is None else self._seen[2].state

    def why_full(self) -> str:
        """That no disk is made in the pool, as LVM says now, or the empty text. Raises nothing."""
        try:
            state = self.look().state
        except OSError as error:
            return str(error)
        return f"the thin pool {self.name}: {why}" if (why := state.problem or state.why_full()) else ""

    def notes_full(self, why: str) -> bool:
        """Whether the pool is full and was not when this was last asked."""
        before, self._was_full = self._was_full, bool(why)
        return self._was_full and not before

    def look(self) -> Contents:
        """Ask LVM. Raises PoolError."""
        changes, asked_at = self._changes, time.monotonic()
        contents = look(self.name, self.settings.seconds_max)
        self._seen = (changes, asked_at, contents)
        return contents

    def recent(self) -> Contents:
        """As `look`, or what it said less than `FRESH_SECONDS` ago if this agent has changed nothing since. Raises PoolError."""
        seen = self._seen
        if seen is not None and seen[0] == self._changes and time.monotonic() - seen[1] < FRESH_SECONDS:
            return seen[2]
        return self.look()

    def own(self, contents: Contents) -> list[Volume]:
        """The volumes of this agent's allocations."""
        mine = [one for one in contents.volumes.values() if self._owner in one.tags and one.allocation_id is not None]
        return sorted(mine, key=lambda one: one.name)

    def find(self, allocation_id: UUID) -> Volume | None:
        """The allocation's volume, asked of LVM now. Raises PoolError, also if another agent made it or another pool has it."""
        return self._of(allocation_id, self.look())

    def _of(self, allocation_id: UUID, contents: Contents) -> Volume | None:
        volume = contents.volumes.get(volume_name(allocation_id))
        if volume is not None and volume.pool != self.name.pool:
            raise PoolError(self.why_elsewhere(volume))
        if volume is not None and self._owner not in volume.tags:
            raise PoolError(
                f"{self.name.group}/{volume.name} was not made by this agent; remove it, or give each agent of the pool its"
                " allocations alone"
            )
        return volume

    def why_elsewhere(self, volume: Volume) -> str:
        """That the volume is not in this pool, and what to do."""
        group = self.name.group
        found = f"in the pool {group}/{volume.pool}" if volume.pool else "in no thin pool"
        remedy = (
            f"set BERTH_LIBVIRT_DISK_POOL to {group}/{volume.pool} until it is released, or " if volume.pool else ""
        )
        return f"{group}/{volume.name} is {found} and not in {self.name}; {remedy}give the pool its name back with lvrename"

    def full_name(self, allocation_id: UUID) -> str:
        """`<volume group>/<volume>` of an allocation, by which evidence names its disk."""
        return f"{self.name.group}/{volume_name(allocation_id)}"

    def create(self, allocation_id: UUID, fence: int, slots: Sequence[int], size_bytes: int) -> Path:
        """Make the allocation's volume, empty; the device. Raises PoolShort before anything is made, PoolError."""
        name = volume_name(allocation_id)
        tags = (self._owner, f"berth.fence={fence}", f"berth.slots={'+'.join(map(str, sorted(slots)))}")
        with self._making:
            self._require_room(self.look().state, size_bytes)
            self._change(
                "lvcreate", "--type", "thin", "--thinpool", self.name.pool, "--virtualsize", f"{size_bytes}b", "--name", name,
                "--setactivationskip", "n", *(part for tag in tags for part in ("--addtag", tag)), self.name.group,
            )  # fmt: skip
            self._require_still_room(name, size_bytes)
        return self.device(name)

    def require_room(self, allocation_id: UUID, size_bytes: int) -> None:
        """Raise PoolShort unless the allocation may have such a volume in place of the one that it has. Raises PoolError."""
        contents = self.look()
        freed = self._of(allocation_id, contents)
        self._require_room(contents.state if freed is None else contents.state.without(freed), size_bytes)

    def note_made(self, volume: str) -> None:
        """The disk on this volume is whole. Raises PoolError."""
        self._change("lvchange", "--addtag", MADE, f"{self.name.group}/{volume}")

    def activate(self, volume: str) -> Path:
        """The device of a volume, which may be inactive since the host started again. Raises PoolError."""
        self._change("lvchange", "--activate", "y", "--ignoreactivationskip", f"{self.name.group}/{volume}")
        return self.device(volume)

    def device(self, volume: str) -> Path:
        """The device of an active volume. Raises PoolError if there is no block device of that name."""
        path = device_of(self.name.group, volume)
        try:
            is_device = stat.S_ISBLK(path.stat().st_mode)
        except OSError as error:
            raise PoolError(f"{path}: {error.strerror}; does this process see the devices of the host?") from error
        if not is_device:
            raise PoolError(f"{path} is no block device")
        return path

    def require_sole(self, volume: Volume) -> None:
        """Raise VolumeInUse if a snapshot shares blocks with the volume."""
        if others := self.look().snapshots_of(volume):
            raise VolumeInUse(
                f"{', '.join(others)} of {self.name.group} was made from {volume.name} and shares its blocks; remove it first"
            )

    def remove(self, volume: str) -> None:
        """Remove the volume, and prove that LVM and the kernel have none of its name. Raises PoolError, VolumeInUse."""
        full = f"{self.name.group}/{volume}"
        try:
            self._change("lvremove", "--force", full)
        except PoolError as error:
            if " in use" in str(error):
                raise VolumeInUse(f"{full} is open in another program: {error}") from error
            if volume in self.look().volumes:
                raise
        if volume in self.look().volumes:
            raise PoolError(f"{full} is still there after it was removed")
        if os.path.lexists(path := device_of(self.name.group, volume)):
            raise PoolError(f"{path} is still there after its volume was removed")

    def _change(self, program: str, *arguments: str) -> None:
        try:
            run(program, "--yes", "--config", CONFIG, *arguments, seconds_max=self.settings.seconds_max)
        finally:
            self._changes += 1

    def _require_room(self, state: PoolState, size_bytes: int) -> None:
        if state.problem:
            raise PoolShort(
                f"the thin pool {self.name}: {state.problem}; repair it with lvconvert --repair, see lvmthin(7)"
            )
        if why := state.why_full(size_bytes):
            raise PoolShort(f"the thin pool {self.name}: {why}; extend it with lvextend")
        most = self._most(state)
        if state.virtual_bytes + size_bytes > most:
            raise PoolShort(
                f"the thin pool {self.name} has {state.size_bytes} bytes, its volumes may have {most} together and have"
                f" {state.virtual_bytes}; the disk needs {size_bytes}; extend the pool with lvextend, remove volumes that are not"
                " Berth's, or raise BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT"
            )

    def _require_still_room(self, volume: str, size_bytes: int) -> None:
        """Another agent of the pool may have made a volume since this one looked: LVM locks each step, and not both."""
        state = self.look().state
        if state.virtual_bytes > self._most(state):
            self.remove(volume)
            raise PoolShort(
                f"the thin pool {self.name}: another program made a volume at the same time, and all together have"
                f" {state.virtual_bytes} bytes of {self._most(state)}; the disk of {size_bytes} was removed again"
            )

    def _most(self, state: PoolState) -> int:
        return int(state.size_bytes * self.settings.overcommit)
