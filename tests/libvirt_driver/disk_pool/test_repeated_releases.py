"""A release that is repeated names the disk that was wiped, whatever the agent's setting is by then, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import DriverFailure, ReleaseOrder
from node_agent.protocol import ReleaseParameters
from tests.libvirt_driver.definitions import ALLOCATION
from tests.libvirt_driver.disk_pool.drivers import (
    FILE,
    NAME,
    VOLUME,
    driver_in,
    guest_of,
    made_volume,
    no_devices,
    no_reset,
    packages_of_driver,
    run,
)
from tests.libvirt_driver.disk_pool.fake_lvm import POOL, FakeLvm, report_of, row


@pytest.fixture(autouse=True)
def _stand_ins() -> Iterator[None]:
    with packages_of_driver():
        yield


def released(driver: Any) -> list[tuple[str, bool]]:
    """What a whole release says of each disk."""
    plan = driver.release(ReleaseOrder(ALLOCATION, 7, ReleaseParameters(slots=[2, 3])))

    async def all_phases() -> None:
        for phase in plan.phases:
            await run(phase)

    asyncio.run(all_phases())
    return [(one["device"], one["proven"]) for one in plan.result().evidence["devices"]]


def cut_short(driver: Any) -> None:
    """A release that ends before its proof is written down: the GPUs cannot be reset."""
    no_reset(driver)
    with pytest.raises(DriverFailure, match="no reset"):
        released(driver)


@pytest.mark.parametrize("pool", [None, "vg0/disks"])
def test_the_file_of_a_guest_stays_a_file_when_the_node_gets_a_pool(
    lvm: FakeLvm, tmp_path: Path, pool: str | None
) -> None:
    directory = guest_of(first := driver_in(tmp_path / "node", "vg0/disks"), file=b"tenant" * 100)
    cut_short(first)
    assert [file.name for file in directory.path.iterdir()] == ["disk.wiped"]
    assert directory.wiped_disk.read_bytes() == b""
    assert released(driver_in(tmp_path / "node", pool)) == [(FILE, True)]
    assert not directory.exists()
    assert lvm.calls("lvremove") == []


@pytest.mark.parametrize("pool", [None, "vg0/disks"])
def test_the_volume_of_a_guest_stays_a_volume_when_the_setting_is_gone(
    lvm: FakeLvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: str | None
) -> None:
    no_devices(monkeypatch)
    directory = guest_of(first := driver_in(tmp_path / "node", "vg0/disks"), volume=VOLUME)
    lvm.pool(made_volume(first))
    lvm.after("lvremove")
    cut_short(first)
    assert [file.name for file in directory.path.iterdir()] == ["disk.wiped"]
    if pool is None:
        with pytest.raises(DriverFailure, match=f"the disk is the volume {VOLUME}, and this agent has no"):
            released(driver_in(tmp_path / "node", None))
    assert released(driver_in(tmp_path / "node", "vg0/disks")) == [(VOLUME, True)]
    assert not directory.exists()


@pytest.mark.parametrize("pool", [None, "vg0/disks"])
def test_an_empty_directory_proves_nothing(lvm: FakeLvm, tmp_path: Path, pool: str | None) -> None:
    driver = driver_in(tmp_path / "node", pool)
    directory = driver._node.directory(ALLOCATION)
    directory.path.mkdir()
    assert released(driver) == []
    assert lvm.calls("lvremove") == []
    assert not directory.exists()


def test_a_disk_that_is_gone_is_not_proven_by_the_next_attempt(lvm: FakeLvm, tmp_path: Path) -> None:
    driver = driver_in(tmp_path / "node", "vg0/disks")
    directory = guest_of(driver, volume=VOLUME)
    for _ in range(2):
        with pytest.raises(DriverFailure, match=f"nothing is known of the disk {VOLUME}"):
            released(driver)
    assert directory.volume == VOLUME, "kept, for when the volume is back"
    assert lvm.calls("lvremove") == []


def test_a_rebuild_that_is_cut_short_leaves_what_was_wiped(
    lvm: FakeLvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_devices(monkeypatch)
    driver = driver_in(tmp_path / "node", "vg0/disks")
    directory = guest_of(driver, file=b"tenant" * 100)
    plan = driver._removal(ALLOCATION, 0.0)
    asyncio.run(run(plan.stop()))
    asyncio.run(run(plan.wipe()))
    assert (directory.is_wiped, directory.device) == (True, FILE)
    # The new disk is named, and not made: its pool was full.
    directory.note_volume(VOLUME)
    assert (directory.is_wiped, directory.device, directory.device_before) == (False, VOLUME, FILE)
    assert released(driver) == [(FILE, True)]

    directory = guest_of(driver, volume=VOLUME)
    directory.wiped_disk.write_bytes(b"")
    lvm.says(report_of(row(**POOL), made_volume(driver)))
    lvm.after("lvremove")
    assert released(driver) == [(VOLUME, True), (FILE, True)]
    assert lvm.calls("lvremove")[-1].endswith(f"vg0/{NAME}")


def test_a_new_disk_ends_what_was_said_of_the_one_before(tmp_path: Path) -> None:
    directory = guest_of(driver_in(tmp_path / "node", None))
    directory.wiped_disk.write_text(VOLUME)
    assert (directory.is_wiped, directory.device) == (True, VOLUME)
    directory.disk.write_bytes(b"new")
    assert (directory.is_wiped, directory.device, directory.device_before) == (False, FILE, VOLUME)
    directory.forget_wiped()
    assert (directory.is_wiped, directory.device, directory.device_before) == (False, FILE, None)


def test_a_volume_of_another_pool_keeps_its_name_and_is_not_proven(lvm: FakeLvm, tmp_path: Path) -> None:
    driver = driver_in(tmp_path / "node", "vg0/disks")
    directory = guest_of(driver, volume=VOLUME)
    lvm.pool(made_volume(driver, pool_lv="older"))
    for _ in range(2):
        with pytest.raises(DriverFailure, match=f"{VOLUME} is in the pool vg0/older and not in vg0/disks"):
            released(driver)
    assert directory.volume_file.read_text() == VOLUME
