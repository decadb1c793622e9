"""Pools that are full, missing, of another kind or busy, by LVM and the kernel themselves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from node_agent.checks.disk_pool import check_disk_pool
from node_agent.checks.finding import Code
from node_agent.drivers.libvirt.disk_pool.guest_disks import make_disk, wipe_disk
from node_agent.drivers.libvirt.disk_pool.pool import PoolShort
from tests.kernels.thin_pools.pools import DISK_BYTES, ThinPool, qemu_io, thin_pool, why_unavailable

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]


def test_a_full_pool_takes_no_disk_and_its_disks_are_wiped_all_the_same(tmp_path: Path) -> None:
    if (reason := why_unavailable()) is not None:
        pytest.skip(f"no thin pool can be made: {reason}")
    with thin_pool(tmp_path, mib=120) as small:
        pool, (first, one), (second, two), (third, three) = small.pool(4.0), small.guest(), small.guest(), small.guest()
        make_disk(pool, first, one)
        make_disk(pool, second, two)
        assert qemu_io(first, f"write -P 0x11 0 {DISK_BYTES}").returncode == 0
        full = qemu_io(second, f"write -P 0x22 0 {DISK_BYTES}")
        assert "No space left on device" in full.stdout + full.stderr, "QEMU stops the guest for it"
        with pytest.raises(PoolShort, match=r"% of its data are used.* extend it with lvextend"):
            make_disk(pool, third, three)
        assert check_disk_pool(str(pool.name), 4.0)[-1].code is Code.DISK_POOL_FULL
        zeroed = wipe_disk(pool, first, threading.Event())
        assert zeroed is not None
        assert zeroed.overwritten_bytes > DISK_BYTES
        assert qemu_io(second, f"write -P 0x22 0 {DISK_BYTES}", "read -P 0x22 1M 1M").returncode == 0, (
            "the guest goes on"
        )
        assert wipe_disk(pool, second, threading.Event()) is not None
        assert small.volumes() == []


def test_metadata_that_are_nearly_full_take_no_disk(thin: ThinPool) -> None:
    # Devices that LVM knows nothing of, as only the metadata count here: each takes a block of 4 KiB.
    thin.sh("lvcreate -q --type thin -V 4M --thinpool disks -n keeps $VG")  # as LVM names the pool apart then
    thin.sh('for n in $(seq 1000 1850); do dmsetup message $VG-disks-tpool 0 "create_thin $n" || break; done')
    directory, record = thin.guest()
    with pytest.raises(PoolShort, match=r"% of its metadata are used"):
        make_disk(thin.pool(), directory, record)
    assert thin.volumes() == ["keeps"]


def test_the_sizes_of_all_volumes_are_bounded(thin: ThinPool) -> None:
    guests = [thin.guest() for _ in range(5)]
    for directory, record in guests[:4]:
        make_disk(thin.pool(), directory, record)
    with pytest.raises(PoolShort, match="BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT"):
        make_disk(thin.pool(), *guests[4])
    make_disk(thin.pool(2.0), *guests[4])
    assert len(thin.volumes()) == 5


def test_the_check_by_lvm_itself(thin: ThinPool) -> None:
    assert [one.code for one in check_disk_pool(f"{thin.group}/disks", 1.0)] == [None, None]
    assert check_disk_pool("absentgroup/disks", 1.0)[0].code is Code.DISK_POOL_ABSENT
    assert check_disk_pool(f"{thin.group}/absent", 1.0)[0].code is Code.DISK_POOL_ABSENT
    thin.sh("lvcreate -q -Wn -Zn -L 8M -n plain $VG")
    assert check_disk_pool(f"{thin.group}/plain", 1.0)[0].code is Code.DISK_POOL_NOT_THIN
    thin.sh("lvchange -q --zero n $VG/disks")
    assert check_disk_pool(f"{thin.group}/disks", 1.0)[0].code is Code.DISK_POOL_NOT_ZEROING
    thin.sh("vgchange -an $VG")
    assert [one.found for one in check_disk_pool(f"{thin.group}/disks", 1.0)][-1].find("does not zero") > 0
