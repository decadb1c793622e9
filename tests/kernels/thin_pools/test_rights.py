"""The rights of deploy/guests/berth-agent-lvm.conf are enough for a volume's whole life, and each of them is needed."""

from __future__ import annotations

import os
import pwd
import sys
import threading
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.disk_pool.guest_disks import make_disk, wipe_disk
from tests.kernels.thin_pools.pools import ThinPool, qemu_io
from tests.libvirt_driver.service_rights import DROP_IN, LVM_DROP_IN, UNIT, give_up, setting

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]

ACCOUNT = pwd.getpwnam("daemon")
# Without udev LVM makes the device nodes itself, with their owner and mode.
OF_UDEV = () if Path("/run/udev/control").exists() else ("CAP_MKNOD", "CAP_CHOWN")


def lives_with(thin: ThinPool, rights: list[str]) -> bool:
    """Whether a disk is made, opened and wiped by a process of the service's user with these capabilities alone."""
    directory, record = thin.guest()
    for path in (thin.allocations.parent, *thin.allocations.parent.rglob("*")):
        os.chown(path, ACCOUNT.pw_uid, ACCOUNT.pw_gid)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            give_up(ACCOUNT.pw_uid, [ACCOUNT.pw_gid], [*rights, *OF_UDEV])
            make_disk(thin.pool(), directory, record)
            opened = qemu_io(directory, "read -P 0x41 0 1M", "write 40M 64k").returncode == 0
            status = 0 if opened and wipe_disk(thin.pool(), directory, threading.Event()) is not None else 2
        except OSError as error:
            print(error, file=sys.stderr)  # noqa: T201 - shown by pytest
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_the_rights_of_the_drop_in_are_enough_and_needed(thin: ThinPool) -> None:
    added = setting("AmbientCapabilities", LVM_DROP_IN)
    assert setting("CapabilityBoundingSet", LVM_DROP_IN) == added
    given = [*setting("AmbientCapabilities", UNIT, DROP_IN), *added]
    assert lives_with(thin, given)
    assert thin.volumes() == []
    for right in added:
        assert not lives_with(thin, [one for one in given if one != right]), f"{right} is not needed"
