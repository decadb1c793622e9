"""An agent that is killed while it makes or wipes a volume: the next one goes on, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from node_agent.drivers.libvirt.disk_pool import guest_disks, pool, zeroing
from node_agent.drivers.libvirt.disk_pool.guest_disks import make_disk, wipe_disk
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool
from node_agent.drivers.libvirt.records import GuestDirectory
from tests.kernels.thin_pools.pools import MARKER, MIB, ThinPool, qemu_io, write_in_the_clear

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(1800)]

Point = tuple[ModuleType | type, str, str, bool]
"""Where a function is looked up, its name, the first argument of the call that counts (or any), and whether it is done then."""
MAKING: dict[str, Point] = {
    "before the volume": (pool, "run", "lvcreate", False),
    "after the volume": (pool, "run", "lvcreate", True),
    "after the overlay": (guest_disks, "format_disk", "", True),
    "after the tag": (pool, "run", "lvchange", True),
}
WIPING: dict[str, Point] = {
    "in the overwriting": (zeroing, "_write", "", True),
    "after the overwriting": (zeroing, "_overwrite", "", True),
    "after the reading back": (zeroing, "_require_zero", "", True),
    "after the discard": (zeroing, "_discard", "", True),
    "after the mark": (GuestDirectory, "mark_wiped", "", True),
    "after the removal": (pool, "run", "lvremove", True),
    "after all of it": (DiskPool, "remove", "", True),
}


def killed_at(point: Point, work: Callable[[], object]) -> None:
    """Do the work in a child that ends by SIGKILL at the point; fails if the child ends the work."""
    child = os.fork()
    if child == 0:
        where, name, first, is_done = point
        real = getattr(where, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            counts = not first or arguments[0] == first
            if counts and not is_done:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if counts:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(where, name, watched)
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{point[1]} was not reached"


def test_a_disk_that_was_half_made_is_made_anew(thin: ThinPool) -> None:
    before = thin.mapped_mib()
    for name, point in MAKING.items():
        directory, record = thin.guest()
        killed_at(point, lambda d=directory, r=record: make_disk(thin.pool(), d, r))  # type: ignore[misc]
        found = thin.pool().find(record.allocation_id)
        assert (found is not None and found.is_made) == (name == "after the tag"), name
        make_disk(thin.pool(), directory, record)
        assert qemu_io(directory, "read -P 0x41 0 1M", "write -P 0x5a 40M 64k").returncode == 0, name
        assert len(thin.volumes()) == 1, name
        assert wipe_disk(thin.pool(), directory, threading.Event()) is not None, name
        assert (thin.volumes(), thin.mapped_mib()) == ([], before), name


def test_a_release_of_what_was_half_made_leaves_nothing(thin: ThinPool) -> None:
    for name, point in MAKING.items():
        directory, record = thin.guest()
        killed_at(point, lambda d=directory, r=record: make_disk(thin.pool(), d, r))  # type: ignore[misc]
        zeroed = wipe_disk(thin.pool(), directory, threading.Event())
        assert (zeroed is None) == (name == "before the volume"), name
        assert thin.volumes() == [], name


def test_a_wipe_that_was_cut_short_is_done_again(thin: ThinPool) -> None:
    before = thin.mapped_mib()
    for name, point in WIPING.items():
        directory, record = thin.guest()
        write_in_the_clear(make_disk(thin.pool(), directory, record), 90 * MIB)
        killed_at(point, lambda d=directory: wipe_disk(thin.pool(), d, threading.Event()))  # type: ignore[misc]
        again = wipe_disk(thin.pool(), directory, threading.Event())
        is_removed = name in ("after the removal", "after all of it")
        assert (again is None) == is_removed, name
        assert directory.wiped_disk.exists(), name
        assert MARKER not in thin.medium.read_bytes(), name
        assert (thin.volumes(), thin.mapped_mib()) == ([], before), name
