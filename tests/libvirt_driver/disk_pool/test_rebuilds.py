"""A rebuild on a node that has a pool: what it names, and what it checks before it destroys anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.drivers.contract import DriverFailure
from node_agent.protocol import FailureCode
from tests.libvirt_driver.definitions import guest
from tests.libvirt_driver.disk_pool.drivers import (
    FILE,
    VOLUME,
    driver_in,
    guest_of,
    made_volume,
    no_devices,
    no_overlays,
    packages_of_driver,
    rebuild_of,
    run,
)
from tests.libvirt_driver.disk_pool.fake_lvm import GIB, FakeLvm


@pytest.fixture(autouse=True)
def _packages() -> Iterator[None]:
    with packages_of_driver():
        yield


def test_a_rebuild_from_a_file_to_a_volume_names_the_volume(
    lvm: FakeLvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_devices(monkeypatch)
    no_overlays(monkeypatch)
    directory = guest_of(driver_in(tmp_path / "node", None), file=b"tenant" * 100)
    assert directory.device == FILE
    driver = driver_in(tmp_path / "node", "vg0/disks")
    plan = rebuild_of(driver)
    phases = {phase.name: phase for phase in plan.phases}
    for name in ("guest_stopped", "wiped", "lease"):
        asyncio.run(run(phases[name]))
    assert directory.is_wiped
    # In place of the phase `image`.
    directory.save(guest(driver._node.allocations, gpus=["0000:81:00.0"], host_key="ssh-ed25519 AAAA")[1])
    lvm.after("lvcreate", made_volume(driver))
    asyncio.run(run(phases["disk"]))
    assert plan.result().evidence["devices"] == [VOLUME, "0000:81:00.0"]
    assert "guest_devices" in plan.result().evidence
    assert not directory.wiped_disk.exists(), "what it says is of the disk before"


@pytest.mark.parametrize(
    ("size", "mapped", "pool", "words"),
    [
        (1, "0.00", {"lv_size": str(GIB - 1)}, "the disk needs 1073741824"),
        (1, "0.00", {"data_percent": "97.00"}, "97 % of its data are used"),
        (1, "0.00", {"metadata_percent": "95.00"}, "95 % of its metadata are used"),
        (100, "5.00", {"data_percent": "97.00"}, None),
        (100, "0.00", {}, None),
    ],
    ids=["sizes", "data", "metadata", "its own data", "its own size"],
)
def test_a_rebuild_that_would_find_no_room_destroys_nothing(
    lvm: FakeLvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, mapped: str, pool: dict[str, str],
    words: str | None,
) -> None:  # fmt: skip
    no_devices(monkeypatch)
    no_overlays(monkeypatch)
    driver = driver_in(tmp_path / "node", "vg0/disks")
    directory = guest_of(driver, volume=VOLUME)
    lvm.pool(made_volume(driver, lv_size=str(size * GIB), data_percent=mapped), **pool)
    first = rebuild_of(driver).phases[0]
    if words is None:
        asyncio.run(run(first))
        assert directory.load().state == "releasing"
    else:
        with pytest.raises(DriverFailure, match=words) as caught:
            asyncio.run(run(first))
        assert caught.value.code is FailureCode.DISK_POOL_SHORT
        assert (directory.load().state, directory.key.read_bytes()) == ("running", b"key")
