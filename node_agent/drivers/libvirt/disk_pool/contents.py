"""What a thin pool holds, as LVM's report says: its state, and its volumes with the allocation that each belongs to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from node_agent.drivers.contract import DiskSpace
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError, number, report

PREFIX = "berth-"
MADE = "berth.made"
"""Tag of a volume whose disk is whole: without it an agent was killed in between, and no guest had the volume."""
DATA_PERCENT_MAX, METADATA_PERCENT_MAX = 95.0, 90.0
"""Beyond these no disk is made. Metadata that are full make the whole pool read-only."""
COLUMNS = (
    "lv_name", "lv_uuid", "lv_size", "pool_lv", "origin", "lv_tags", "lv_layout", "zero", "data_percent",
    "metadata_percent", "lv_health_status", "lv_active", "lv_device_open", "lv_check_needed", "lv_permissions",
)  # fmt: skip


class PoolAbsent(PoolError):
    """There is no such pool, as far as this host sees."""


class NoThinPool(PoolError):
    """There is a volume of this name, and it is no thin pool."""


@dataclass(frozen=True)
class PoolName:
    """`<volume group>/<thin pool>`."""

    group: str
    pool: str

    @classmethod
    def of(cls, text: str) -> PoolName:
        """The name that a setting of the right form states."""
        group, _, pool = text.partition("/")
        return cls(group, pool)

    def __str__(self) -> str:
        return f"{self.group}/{self.pool}"


@dataclass(frozen=True)
class Volume:
    """One volume of the group. `pool`: the thin pool that it is in, or empty. `allocation_id` is None for one that Berth did not
    make. `mapped_bytes`: what it has of the pool's blocks; 0 where that is not known."""

    name: str
    pool: str
    size_bytes: int
    mapped_bytes: int
    tags: frozenset[str]
    origin: str
    is_active: bool
    is_open: bool
    allocation_id: UUID | None = None

    @property
    def is_made(self) -> bool:
        """Whether its disk is whole."""
        return MADE in self.tags

    @property
    def fence(self) -> int | None:
        """The fence under which it was made."""
        text = self._tagged("berth.fence=")
        return int(text) if text.isdecimal() else None

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of its guest."""
        return tuple(int(one) for one in self._tagged("berth.slots=").split("+") if one.isdecimal())

    def _tagged(self, prefix: str) -> str:
        return next((tag.removeprefix(prefix) for tag in sorted(self.tags) if tag.startswith(prefix)), "")


@dataclass(frozen=True)
class PoolState:
    """A thin pool. Percents are None while it is not active. `virtual_bytes`: the sizes of all its volumes."""

    size_bytes: int
    data_percent: float | None
    metadata_percent: float | None
    zeroes: bool
    problem: str
    virtual_bytes: int

    @property
    def space(self) -> DiskSpace:
        """What the agent's metrics say of it."""
        data, metadata = (None if one is None else one / 100 for one in (self.data_percent, self.metadata_percent))
        return DiskSpace(self.size_bytes, self.virtual_bytes, data, metadata)

    def without(self, volume: Volume) -> PoolState:
        """The pool once a volume of it is removed; what that gives back of the metadata is not known."""
        data = self.data_percent
        if data is not None:
            data = max(0.0, data - 100 * volume.mapped_bytes / self.size_bytes)
        return replace(self, virtual_bytes=self.virtual_bytes - volume.size_bytes, data_percent=data)

    def holds_all(self, size_bytes: int) -> bool:
        """Whether all its volumes, and one of so many bytes, have room when their guests have filled them."""
        # LVM rounds percents to hundredths. Blocks beyond the volumes' sizes are of something that LVM does not know.
        used = self.size_bytes * max(0.0, (self.data_percent or 0.0) - 0.01) / 100
        return used <= self.virtual_bytes and self.virtual_bytes + size_bytes <= self.size_bytes

    def why_full(self, size_bytes: int = 0) -> str:
        """Why no disk of so many bytes is made in it, or the empty text. Data count where they can run out."""
        data = None if self.holds_all(size_bytes) else self.data_percent
        for what, percent, most in (
            ("data", data, DATA_PERCENT_MAX), ("metadata", self.metadata_percent, METADATA_PERCENT_MAX),
        ):  # fmt: skip
            if percent is not None and percent >= most:
                return f"{percent:g} % of its {what} are used, and from {most:g} % on no disk is made"
        return ""


@dataclass(frozen=True)
class Contents:
    """One report of LVM: the pool, and every other volume of its group by name. A pool may have been renamed or replaced."""

    state: PoolState
    volumes: dict[str, Volume]

    def snapshots_of(self, volume: Volume) -> Sequence[str]:
        """Volumes that share blocks with this one, since they were made from it."""
        return sorted(other.name for other in self.volumes.values() if other.origin == volume.name)


def look(name: PoolName, seconds_max: float) -> Contents:
    """Ask LVM. Raises PoolError, PoolAbsent, NoThinPool."""
    try:
        rows = report("lvs", name.group, columns=COLUMNS, seconds_max=seconds_max)
    except PoolError as error:
        if f'Volume group "{name.group}" not found' in str(error):
            raise PoolAbsent(f"there is no volume group {name.group}") from error
        raise
    return contents_of(name, rows)


def contents_of(name: PoolName, rows: Sequence[Mapping[str, str]]) -> Contents:
    """The contents that these rows say. Raises PoolError, PoolAbsent, NoThinPool."""
    pool = next((row for row in rows if row["lv_name"] == name.pool), None)
    if pool is None:
        raise PoolAbsent(f"the volume group {name.group} has no volume {name.pool}")
    if "pool" not in (layout := pool["lv_layout"].split(",")) or "thin" not in layout:
        raise NoThinPool(f"{name} is no thin pool, but {pool['lv_layout'] or 'something else'}")
    volumes = {row["lv_name"]: _volume(row) for row in rows if row is not pool}
    state = PoolState(
        size_bytes=_bytes(pool), data_percent=number(pool, "data_percent"),
        metadata_percent=number(pool, "metadata_percent"), zeroes=pool["zero"] == "zero", problem=_problem_of(pool),
        virtual_bytes=sum(volume.size_bytes for volume in volumes.values() if volume.pool == name.pool),
    )  # fmt: skip
    return Contents(state, volumes)


def volume_name(allocation_id: UUID) -> str:
    """The name of an allocation's volume."""
    return f"{PREFIX}{allocation_id}"


def owner_tag(allocations: Path) -> str:
    """The tag of volumes of the agent with this directory of allocations. Two agents may share a pool; a path may have
    characters that a tag may not."""
    return f"berth.owner={hashlib.sha256(os.fsencode(allocations)).hexdigest()[:16]}"


def device_of(group: str, volume: str) -> Path:
    """The device node of an active volume."""
    return Path("/dev") / group / volume


def _volume(row: Mapping[str, str]) -> Volume:
    name = row["lv_name"]
    try:
        allocation_id = UUID(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    except ValueError:
        allocation_id = None
    size_bytes = _bytes(row)
    mapped_bytes = int(size_bytes * (number(row, "data_percent") or 0.0) / 100) if row["pool_lv"] else 0
    return Volume(
        name=name, pool=row["pool_lv"], size_bytes=size_bytes, tags=frozenset(row["lv_tags"].split(",")), origin=row["origin"],
        is_active=row["lv_active"] == "active", is_open=row["lv_device_open"] == "open", allocation_id=allocation_id,
        mapped_bytes=mapped_bytes,
    )  # fmt: skip


def _problem_of(pool: Mapping[str, str]) -> str:
    health = pool["lv_health_status"]
    if health not in ("", "out_of_data"):
        return f"LVM says that its health is {health}"
    if pool["lv_check_needed"] not in ("", "unknown"):
        return "its metadata need a check"
    return ""


def _bytes(row: Mapping[str, str]) -> int:
    if (found := number(row, "lv_size")) is None:
        raise PoolError(f"LVM does not say how large {row['lv_name']} is")
    return int(found)
