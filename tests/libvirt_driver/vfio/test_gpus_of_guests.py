"""What the driver does with GPUs of guests: at its start, before a rebuild, at a release, and with leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import DriverFailure, Phase, ReleaseOrder, Verb, VerbOrder
from node_agent.drivers.images import ImageBounds
from node_agent.drivers.leases import Leases
from node_agent.drivers.libvirt.placing import PlacementSettings
from node_agent.drivers.libvirt.starting import GpuSettings, given, look_at_host
from node_agent.problems import CannotStart
from node_agent.protocol import FailureCode, ProvisionParameters, ReleaseParameters
from tests.libvirt_driver.definitions import guest
from tests.libvirt_driver.placement.hosts import GIB
from tests.libvirt_driver.vfio.gpus import ALLOCATION, OTHER
from tests.libvirt_driver.vfio.kernel import GPUS, Kernel

pytestmark = pytest.mark.hardware
"""They need the packages of the driver, and no guest."""

pytest.importorskip("libvirt", reason="the packages of requirements-libvirt.lock are not installed")

LIBVIRT_OF_TESTS = "test:///default"
"""libvirt's own stand-in for a hypervisor: it has no guest of Berth."""
PARAMETERS: dict[str, Any] = {
    "slots": [1], "gpu_model": "H100", "ssh_public_keys": ["ssh-ed25519 AAAA"], "hostname": "guest",
    "image": {"name": "mini", "url": "file:///nowhere", "sha256": "0" * 64, "login_user": "berth"},
}  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with Kernel(tmp_path / "host") as running:
        yield running


@pytest.fixture
def driver(kernel: Kernel, tmp_path: Path) -> Any:
    return driver_in(tmp_path / "node", kernel.root)


def driver_in(directory: Path, root: Path) -> Any:
    """A driver of this directory that has looked at its host."""
    from node_agent.drivers.libvirt.driver import LibvirtDriver
    from node_agent.drivers.libvirt.node import LibvirtLimits

    limits = LibvirtLimits(
        "127.0.0.1", 20_000, 20_010, 1.0, ImageBounds(GIB, 4, GIB), 60.0, GIB, 64_500,
        PlacementSettings(1, GIB, root=root),
    )  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    made: Any = LibvirtDriver(directory, LIBVIRT_OF_TESTS, limits, gpus=GpuSettings())
    look(made)
    return made


def look(driver: Any) -> None:
    look_at_host(driver._node, driver._slots_file, driver._gpus)


def saved(driver: Any, **changes: Any) -> Any:
    """The directory of a guest, with its record."""
    directory, record = guest(driver._node.allocations, state="running", **changes)
    directory.path.mkdir()
    directory.save(record)
    return directory


async def run(phase: Phase) -> str:
    return await phase.run(lambda _share, _detail: None)


def test_a_start_whose_slots_mean_other_gpus_than_a_guest_has_is_refused(kernel: Kernel, driver: Any) -> None:
    directory = saved(driver, slots=[1], gpus=[GPUS[1]])
    look(driver)
    kernel.remove(GPUS[0])
    driver._slots_file.unlink()
    with pytest.raises(CannotStart, match=rf"has the GPUs {GPUS[1]}, and its slots 1 mean {GPUS[2]}; put back"):
        look(driver)
    driver._slots_file.unlink()
    directory.save(directory.load().model_copy(update={"gpus": []}))
    look(driver)


def test_a_gpu_that_another_record_names_is_not_given(driver: Any) -> None:
    saved(driver, slots=[1], gpus=[GPUS[2]])
    with pytest.raises(DriverFailure, match="vfio_device_taken") as caught:
        given(driver._node, [2], None)
    assert caught.value.code is FailureCode.VFIO_HOST_NOT_READY
    assert given(driver._node, [3], None)["gpus"] == [GPUS[3]]


def test_a_rebuild_that_could_not_have_its_gpus_ends_nothing(kernel: Kernel, driver: Any) -> None:
    directory = saved(driver, slots=[1], gpus=[GPUS[1]])
    asyncio.run(driver._node.gpus.take(ALLOCATION, [GPUS[1]]))
    (kernel.device(GPUS[1]) / "reset").unlink()
    parameters = ProvisionParameters.model_validate(PARAMETERS)
    plan = driver.verb(VerbOrder(ALLOCATION, 7, Verb.REBUILD, parameters))
    with pytest.raises(DriverFailure, match="vfio_reset_missing") as caught:
        asyncio.run(run(plan.phases[0]))
    assert caught.value.code is FailureCode.VFIO_HOST_NOT_READY
    assert directory.load().state == "running"


def test_what_was_taken_is_forgotten_before_a_slot_is_free(driver: Any, tmp_path: Path) -> None:
    asyncio.run(driver._node.gpus.take(ALLOCATION, [GPUS[1]]))
    asyncio.run(driver._node.gpus.give_back(ALLOCATION))
    (tmp_path / "node/leases/slot-1.json").mkdir()
    plan = driver.release(ReleaseOrder(ALLOCATION, 7, ReleaseParameters(slots=[1])))
    with pytest.raises(DriverFailure):
        asyncio.run(run(plan.phases[-1]))
    assert not driver._node.taken.has(ALLOCATION)


def test_what_cannot_be_read_of_what_is_taken_fails_the_release_and_not_its_order(driver: Any) -> None:
    saved(driver, slots=[1], gpus=[GPUS[1]])
    asyncio.run(driver._node.gpus.take(ALLOCATION, [GPUS[1]]))
    (file,) = driver._node.taken._directory.iterdir()
    file.write_text("{")
    plan = driver.release(ReleaseOrder(ALLOCATION, 7, ReleaseParameters(slots=[1])))
    with pytest.raises(DriverFailure) as caught:
        asyncio.run(run(plan.phases[1]))
    assert caught.value.code is FailureCode.CLEANUP_FAILED
    assert plan.result().released is False


def test_the_lease_of_what_has_a_gpu_is_renewed(driver: Any, tmp_path: Path) -> None:
    earlier = Leases(tmp_path / "node/leases", 60.0)
    earlier.take([1], ALLOCATION, 7)
    earlier.take([2], OTHER, 8)
    asyncio.run(driver._node.gpus.take(ALLOCATION, [GPUS[1]]))
    assert asyncio.run(driver.tend_leases()) == [2]
    assert set(driver._leases.held()) == {1}
