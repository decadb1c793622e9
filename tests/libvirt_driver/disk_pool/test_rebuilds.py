"""A rebuild on a node that has a pool: what it names, and what it looks at before it destroys anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

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
from tests.libvirt_driver.disk_pool.fake_lvm import FakeLvm


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
