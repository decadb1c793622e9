"""The life of a disk on a real thin volume: made, opened by QEMU, written, wiped, and nothing of it left on the medium."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.disk_pool.contents import volume_name
from node_agent.drivers.libvirt.disk_pool.guest_disks import activate_disk, make_disk, wipe_disk
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError
from node_agent.drivers.libvirt.disk_pool.pool import VolumeInUse
from node_agent.drivers.libvirt.disk_pool.zeroing import mapped_of
from tests.kernels.thin_pools.pools import DISK_BYTES, MARKER, MIB, ThinPool, not_zero, qemu_io, write_in_the_clear

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


def test_a_disk_is_made_written_and_wiped_and_its_space_is_back(thin: ThinPool) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    before = thin.mapped_mib()
    device = make_disk(pool, directory, record)
    assert directory.volume == f"{thin.group}/{volume_name(record.allocation_id)}"
    assert "read 1048576/1048576" in qemu_io(directory, "read -P 0x41 0 1M").stdout, "the image shows through"
    assert qemu_io(directory, "write -P 0x5a 40M 8M", "read -P 0x5a 40M 8M").returncode == 0
    assert b"\x5a" * 4096 not in thin.medium.read_bytes(), "what the guest writes is encrypted"
    write_in_the_clear(device, 90 * MIB)
    assert MARKER in thin.medium.read_bytes()
    assert thin.mapped_mib() > before + 8

    zeroed = wipe_disk(pool, directory, threading.Event())
    assert zeroed is not None
    assert (zeroed.discarded, zeroed.overwritten_bytes > 8 * MIB, zeroed.read_back_bytes > 90 * MIB) == (
        True,
        True,
        True,
    )
    assert zeroed.overwritten_bytes <= zeroed.mapped_bytes
    assert MARKER not in thin.medium.read_bytes()
    assert (thin.mapped_mib(), thin.volumes()) == (before, [])
    assert not os.path.lexists(device)
    assert (directory.volume_file.exists(), directory.wiped_disk.exists()) == (False, True)
    assert wipe_disk(thin.pool(), directory, threading.Event()) is None, "repeated, it finds nothing"


def test_what_is_overwritten_is_gone_from_the_medium_before_anything_is_discarded(
    thin: ThinPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    write_in_the_clear(make_disk(pool, directory, record), 90 * MIB)
    monkeypatch.setattr("node_agent.drivers.libvirt.disk_pool.zeroing._discard", lambda *_: False)
    monkeypatch.setattr(pool, "remove", lambda _name: None)
    zeroed = wipe_disk(pool, directory, threading.Event())
    assert zeroed is not None
    assert not zeroed.discarded
    assert MARKER not in thin.medium.read_bytes()
    assert not_zero(Path(f"/dev/{thin.group}/{volume_name(record.allocation_id)}")) == 0


def test_a_disk_that_its_guest_fills_has_room_for_all_of_it(thin: ThinPool) -> None:
    directory, record = thin.guest()
    make_disk(thin.pool(), directory, record)
    done = qemu_io(directory, f"write -P 0x11 0 {DISK_BYTES}", f"read -P 0x11 0 {DISK_BYTES}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_volume_reads_only_zeros_after_another_guest(thin: ThinPool) -> None:
    pool, (first, one), (second, two) = thin.pool(), thin.guest(), thin.guest()
    write_in_the_clear(make_disk(pool, first, one), 60 * MIB)
    assert qemu_io(first, f"write -P 0x11 0 {DISK_BYTES}").returncode == 0
    # Removed without a wipe, as by hand: the blocks hold what the guest wrote, and the pool zeroes what it gives out.
    thin.sh(f"lvremove -f -y $VG/{volume_name(one.allocation_id)}")
    device = pool.create(two.allocation_id, 1, [0], DISK_BYTES)
    assert not_zero(device) == 0
    with device.open("r+b") as file:  # a block that is given out in part
        file.write(b"x")
    assert not_zero(device) == 1
    assert device.read_bytes()[1 : 64 << 10].strip(b"\0") == b""
    assert second.volume is None


def test_an_inactive_volume_is_activated_as_after_a_start_of_the_host(thin: ThinPool) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    make_disk(pool, directory, record)
    assert qemu_io(directory, "write -P 0x77 3M 64k").returncode == 0
    thin.sh("vgchange -an $VG")
    assert qemu_io(directory, "read 3M 64k").returncode != 0
    activate_disk(thin.pool(), directory)
    assert qemu_io(directory, "read -P 0x77 3M 64k").returncode == 0
    thin.sh("vgchange -an $VG")
    assert wipe_disk(thin.pool(), directory, threading.Event()) is not None, "a wipe activates it too"


def test_a_disk_that_is_there_is_kept(thin: ThinPool) -> None:
    directory, record = thin.guest()
    make_disk(thin.pool(), directory, record)
    assert qemu_io(directory, "write -P 0x33 1M 64k").returncode == 0
    make_disk(thin.pool(), directory, record)
    assert qemu_io(directory, "read -P 0x33 1M 64k").returncode == 0
    assert len(thin.volumes()) == 1


def test_a_wipe_of_what_is_open_or_shared_removes_nothing(thin: ThinPool) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    device = make_disk(pool, directory, record)
    name = volume_name(record.allocation_id)
    with subprocess.Popen(["sleep", "600"], stdin=device.open("rb")) as holder:
        try:
            with pytest.raises(VolumeInUse, match="is open in another program"):
                wipe_disk(pool, directory, threading.Event())
        finally:
            holder.kill()
    thin.sh(f"lvcreate -q -s -n copy $VG/{name}")
    with pytest.raises(VolumeInUse, match=f"copy of {thin.group} was made from"):
        wipe_disk(pool, directory, threading.Event())
    assert qemu_io(directory, "read -P 0x41 0 1M").returncode == 0
    thin.sh("lvremove -f -y $VG/copy")
    assert wipe_disk(pool, directory, threading.Event()) is not None


def test_a_wipe_that_does_not_reach_the_medium_is_found(thin: ThinPool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    make_disk(pool, directory, record)
    monkeypatch.setattr(os, "pwritev", lambda _descriptor, parts, _place: len(parts[0]))
    with pytest.raises(PoolError, match="is not zero behind"):
        wipe_disk(pool, directory, threading.Event())
    assert len(thin.volumes()) == 1
    assert directory.volume_file.exists()


def test_an_interrupted_wipe_is_repeated(thin: ThinPool) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    device, stop = make_disk(pool, directory, record), threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        wipe_disk(pool, directory, stop)
    assert mapped_of(device, 60)[0] > 0
    assert wipe_disk(pool, directory, threading.Event()) is not None


def test_a_volume_is_found_by_an_agent_without_files(thin: ThinPool) -> None:
    directory, record = thin.guest(fence=7)
    make_disk(thin.pool(), directory, record)
    later = thin.pool()
    (volume,) = later.own(later.look())
    assert (volume.allocation_id, volume.fence, volume.slots, volume.is_made) == (record.allocation_id, 7, (0, 3), True)


def test_a_volume_that_another_made_is_left_alone(thin: ThinPool) -> None:
    pool, (directory, record) = thin.pool(), thin.guest()
    thin.sh(f"lvcreate -q --type thin -V 50M --thinpool disks -n {volume_name(record.allocation_id)} $VG")
    for act in (lambda: make_disk(pool, directory, record), lambda: wipe_disk(pool, directory, threading.Event())):
        with pytest.raises(PoolError, match="was not made by this agent"):
            act()
    assert len(thin.volumes()) == 1
    assert pool.own(pool.look()) == []
