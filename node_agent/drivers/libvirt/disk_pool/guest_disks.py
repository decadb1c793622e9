"""The disk of one guest on a volume of the pool: made whole or not at all, and wiped so that its absence is proven.

`disk.volume` in the guest's directory names the volume before it is made. Everything blocks: call it in a thread.
"""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from node_agent.drivers.libvirt.disk_pool.contents import volume_name
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, VolumeInUse
from node_agent.drivers.libvirt.disk_pool.zeroing import Zeroed, zero_volume
from node_agent.drivers.libvirt.disks import format_disk, full_bytes, make_key
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord


def require_room(pool: DiskPool, allocation_id: UUID, disk_bytes: int) -> None:
    """Raise PoolShort unless a new disk of the allocation has room in place of the one that it has. Raises OSError."""
    with TemporaryDirectory(prefix="berth-measure-") as aside:
        make_key(key := Path(aside) / "key")  # of no disk: QEMU measures with one
        size_bytes = full_bytes(key, disk_bytes)
    pool.require_room(allocation_id, size_bytes)


def make_disk(pool: DiskPool, directory: GuestDirectory, record: GuestRecord) -> Path:
    """Make key, volume and encrypted overlay, unless they are there; the device. Raises PoolShort, OSError.

    A volume without its tag is from an agent that was killed before a guest had it: it is removed and made again.
    """
    name = volume_name(record.allocation_id)
    directory.note_volume(pool.full_name(record.allocation_id))
    make_key(directory.key)
    found = pool.find(record.allocation_id)
    if found is not None and found.is_made:
        return pool.activate(name)
    if found is not None:
        pool.remove(name)
    size_bytes = full_bytes(directory.key, record.disk_bytes)
    device = pool.create(record.allocation_id, record.fence, record.slots, size_bytes)
    format_disk(device, directory.key, directory.base, record.image_format, record.disk_bytes)
    pool.note_made(name)
    return device


def activate_disk(pool: DiskPool | None, directory: GuestDirectory) -> None:
    """Make the device of the guest's volume usable; of a guest whose disk is a file nothing is done. Raises OSError."""
    if (volume := directory.volume) is None:
        return
    if pool is None:
        raise OSError(f"the guest's disk is the volume {volume}, and this agent has no BERTH_LIBVIRT_DISK_POOL")
    pool.activate(volume.rpartition("/")[2])


def wipe_disk(pool: DiskPool, directory: GuestDirectory, stop: threading.Event) -> Zeroed | None:
    """Overwrite the volume, read it back, discard it, remove it; None if there was none. Raises OSError.

    The key is destroyed before. `disk.volume` becomes `disk.wiped` between overwriting and removal: a repetition knows then.
    """
    assert directory.allocation_id is not None
    if (volume := pool.find(directory.allocation_id)) is None:
        return None
    pool.require_sole(volume)
    if volume.is_open:
        raise VolumeInUse(f"{pool.name.group}/{volume.name} is open in another program; end it")
    zeroed = zero_volume(pool.activate(volume.name), stop, pool.settings.seconds_max)
    directory.mark_wiped()
    pool.remove(volume.name)
    return zeroed
