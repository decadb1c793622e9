"""What a volume changes for its guest's definition and the agent's metrics."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from node_agent.drivers.contract import DiskSpace, disk_space_of
from node_agent.metrics import AgentMetrics
from node_agent.protocol import FailureCode
from tests.libvirt_driver.definitions import ALLOCATION, defined, guest
from tests.libvirt_driver.disk_pool.drivers import driver_in, packages_of_driver


def test_a_guest_with_a_volume_has_a_block_device_and_waits_for_each_error(tmp_path: Path) -> None:
    directory, _ = guest(tmp_path)
    directory.path.mkdir()
    directory.note_volume("vg0/berth-x")
    disk = defined(directory=tmp_path).find("devices/disk")
    assert disk is not None
    driver, source = disk.find("driver"), disk.find("source")
    assert driver is not None
    assert source is not None
    assert (disk.get("type"), source.get("dev"), source.get("file")) == ("block", "/dev/vg0/berth-x", None)
    policies = [driver.get(name) for name in ("error_policy", "rerror_policy", "cache", "discard", "detect_zeroes")]
    assert policies == ["stop", "report", "none", "ignore", "off"]
    assert source.find("encryption/secret") is not None


def test_a_guest_with_a_file_is_defined_as_before() -> None:
    disk = defined().find("devices/disk")
    assert disk is not None
    assert disk.get("type") == "file"
    assert disk.find("driver[@error_policy]") is None


class Stored:
    """A driver whose disks share something."""

    def __init__(self, space: DiskSpace | None) -> None:
        self._space = space

    def disk_space(self) -> DiskSpace | None:
        return self._space


def test_the_space_of_the_pool_is_measured_where_there_is_one() -> None:
    metrics = AgentMetrics()
    for nothing in (object(), Stored(None)):
        metrics.note_disk_space(disk_space_of(nothing))
    assert metrics.registry.get_sample_value("berth_agent_disk_pool_bytes", {"kind": "size"}) is None
    metrics.note_disk_space(disk_space_of(Stored(DiskSpace(100, 70, 0.25, None))))
    read = metrics.registry.get_sample_value
    assert [read("berth_agent_disk_pool_bytes", {"kind": kind}) for kind in ("size", "promised")] == [100.0, 70.0]
    assert [read("berth_agent_disk_pool_used_ratio", {"kind": kind}) for kind in ("data", "metadata")] == [0.25, None]


def test_why_a_guest_does_not_start_is_not_asked_of_lvm_on_the_loop(tmp_path: Path) -> None:
    asked: list[bool] = []

    class Slow:
        def why_full(self) -> str:
            asked.append(threading.current_thread() is threading.main_thread())
            return "the thin pool vg0/disks: full"

    with packages_of_driver():
        from node_agent.drivers.libvirt.provisioning import Boot

        driver = driver_in(tmp_path / "node", None)
        driver._node.disk_pool = Slow()
        boot = Boot(driver._node, driver._node.directory(ALLOCATION))
        failure = asyncio.run(boot._failure(FailureCode.GUEST_MARKER_MISSING, "the guest", OSError("silent")))
    assert asked == [False]
    assert failure.detail == "the guest: silent; the thin pool vg0/disks: full"
