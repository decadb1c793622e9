"""GPUs are taken whole or not at all, and are given back reset, with proof, to the driver that they had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.vfio.judging import Lack, VfioNotReady
from node_agent.drivers.libvirt.vfio.passing import PassedGpus
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from tests.libvirt_driver.vfio.gpus import ALLOCATION, OTHER, gpus_of
from tests.libvirt_driver.vfio.kernel import GPUS, SOUND, Kernel


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with Kernel(tmp_path / "host") as running:
        yield running


@pytest.fixture
def gpus(kernel: Kernel, tmp_path: Path) -> PassedGpus:
    return gpus_of(kernel.root, tmp_path / "devices")


def take(gpus: PassedGpus, *addresses: str) -> None:
    asyncio.run(gpus.take(ALLOCATION, list(addresses)))


def give_back(gpus: PassedGpus) -> list[DeviceWipe]:
    return asyncio.run(gpus.give_back(ALLOCATION))


def state(gpus: PassedGpus) -> str | None:
    known = gpus.taken.load(ALLOCATION)
    return None if known is None else known[0]


def test_a_gpu_is_bound_with_its_card_and_returned_reset(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[0])
    assert [kernel.driver(one) for one in (GPUS[0], SOUND, GPUS[1])] == ["vfio-pci", "vfio-pci", "nvidia"]
    assert state(gpus) == "passed"
    assert list(gpus.taken.all()) == [ALLOCATION]
    (proof,) = give_back(gpus)
    assert kernel.resets == [GPUS[0]]
    assert (proof.device, proof.kind, proof.method, proof.level) == (GPUS[0], "gpu", "reset: flr", WipeLevel.NONE)
    assert proof.proven
    assert proof.checked == {
        "pci_id_before": "10de:2330", "pci_id_after": "10de:2330", "driver_after_reset": "vfio-pci", "driver": "nvidia",
    }  # fmt: skip
    assert [kernel.driver(one) for one in (GPUS[0], SOUND)] == ["nvidia", "snd_hda_intel"]
    names = [name for name, _ in kernel.writes]
    assert names.index("reset") < names.index("unbind", 6), "reset before the host has them"


@pytest.mark.full
def test_both_can_be_repeated_and_the_reset_is_proven_until_it_is_forgotten(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, *GPUS[2:])
    take(gpus, *GPUS[2:])
    assert [proof.device for proof in give_back(gpus)] == GPUS[2:]
    again = give_back(gpus)
    assert [proof.checked for proof in again] == [{"reset_before": True, "driver": "nvidia"}] * 2
    assert kernel.resets == GPUS[2:], "and not reset again: another guest may have them by then"
    gpus.taken.forget(ALLOCATION)
    assert give_back(gpus) == []


@pytest.mark.full
def test_what_was_reset_can_be_taken_again(kernel: Kernel, gpus: PassedGpus) -> None:
    for _ in range(2):
        take(gpus, GPUS[1])
        assert kernel.driver(GPUS[1]) == "vfio-pci"
        give_back(gpus)
    assert kernel.resets == [GPUS[1]] * 2


def test_gpus_are_left_on_vfio_if_that_is_set(kernel: Kernel, tmp_path: Path) -> None:
    gpus = gpus_of(kernel.root, tmp_path / "devices", are_returned=False)
    take(gpus, GPUS[1])
    (proof,) = give_back(gpus)
    assert proof.checked["driver"] == kernel.driver(GPUS[1]) == "vfio-pci"
    take(gpus, GPUS[1])


def test_a_host_that_is_not_ready_is_left_as_it_was(kernel: Kernel, gpus: PassedGpus) -> None:
    with pytest.raises(VfioNotReady, match="vfio_group_shared"):
        take(gpus, GPUS[2])
    assert (kernel.writes, state(gpus)) == ([], None)
    with pytest.raises(VfioNotReady, match="slot 4 has no GPU: the host has 4"):
        gpus.of_slots([0, 4])
    assert gpus.of_slots([3, 1]) == [GPUS[1], GPUS[3]]


@pytest.mark.full
def test_a_binding_that_the_kernel_refuses_is_undone_without_a_reset(kernel: Kernel, gpus: PassedGpus) -> None:
    kernel.refused.add(SOUND)
    with pytest.raises(VfioNotReady) as caught:
        take(gpus, GPUS[0])
    assert [one.lack for one in caught.value.objections] == [Lack.DRIVER_HOLDS]
    assert f"no driver takes {SOUND}" in str(caught.value)
    assert state(gpus) == "taking"
    kernel.refused.clear()
    assert give_back(gpus) == []
    assert kernel.resets == [], "no guest has had it"
    assert [kernel.driver(one) for one in (GPUS[0], SOUND)] == ["nvidia", "snd_hda_intel"]


def test_a_gpu_that_does_not_answer_after_its_reset_stays_taken(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    (kernel.device(GPUS[1]) / "config").write_bytes(b"\xff" * 64)
    with pytest.raises(OSError, match=f"{GPUS[1]} is None of driver vfio-pci after its reset"):
        give_back(gpus)
    assert (state(gpus), kernel.driver(GPUS[1])) == ("passed", "vfio-pci")


def test_a_gpu_that_the_kernel_cannot_reset_stays_taken(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    (kernel.device(GPUS[1]) / "reset").unlink()
    with pytest.raises(OSError, match=f"the GPU {GPUS[1]} is not reset"):
        give_back(gpus)
    assert (state(gpus), kernel.driver(GPUS[1])) == ("passed", "vfio-pci")


def test_a_gpu_that_a_process_has_open_is_not_reset(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    kernel.open_by_process("/dev/vfio/41")
    with pytest.raises(OSError, match="1 processes have it open"):
        give_back(gpus)
    assert kernel.resets == []


def test_a_gpu_that_was_unbound_by_hand_is_bound_again_and_reset(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    (kernel.device(GPUS[1]) / "driver").unlink()
    (kernel.device(GPUS[1]) / "driver").symlink_to(kernel.root / "sys/bus/pci/drivers/nvidia")
    (proof,) = give_back(gpus)
    assert proof.proven
    assert (kernel.resets, kernel.driver(GPUS[1])) == ([GPUS[1]], "nvidia")


def test_what_cannot_be_read_of_what_is_taken_is_an_error_and_not_nothing(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    (file,) = (gpus.taken._directory).iterdir()
    file.write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        give_back(gpus)


@pytest.mark.quick("alone on its card")
@pytest.mark.parametrize("own", [GPUS[1], GPUS[0]], ids=["alone on its card", "with sound beside it"])
def test_a_gpu_of_a_guest_that_is_stopped_goes_to_no_other(kernel: Kernel, gpus: PassedGpus, own: str) -> None:
    asyncio.run(gpus.take(OTHER, [own]))
    for attempt in (gpus.require_ready, gpus.take):
        with pytest.raises(VfioNotReady, match=f"allocation {OTHER} has {own}") as caught:
            asyncio.run(attempt(ALLOCATION, [own]))
        assert {one.lack for one in caught.value.objections} == {Lack.DEVICE_TAKEN}
    assert state(gpus) is None
    asyncio.run(gpus.give_back(OTHER))
    take(gpus, own)
    assert state(gpus) == "passed", "what is reset is free, although the other's file is there"


@pytest.mark.full
def test_what_another_guest_was_about_to_get_goes_to_none(kernel: Kernel, gpus: PassedGpus) -> None:
    kernel.refused.add(SOUND)
    with pytest.raises(VfioNotReady):
        asyncio.run(gpus.take(OTHER, [GPUS[0]]))
    with pytest.raises(VfioNotReady, match="vfio_device_taken"):
        take(gpus, GPUS[0])


def test_of_two_guests_that_start_at_once_one_gets_the_gpu(kernel: Kernel, gpus: PassedGpus) -> None:
    async def both() -> list[object]:
        takes = [gpus.take(one, [GPUS[1]]) for one in (ALLOCATION, OTHER)]
        return list(await asyncio.gather(*takes, return_exceptions=True))

    found = asyncio.run(both())
    assert sorted(type(one).__name__ for one in found) == ["NoneType", "VfioNotReady"]
    assert len(list(gpus.taken.all())) == 1


def test_what_is_damaged_of_another_guest_gives_its_gpus_to_none(kernel: Kernel, gpus: PassedGpus) -> None:
    asyncio.run(gpus.take(OTHER, [GPUS[1]]))
    (file,) = gpus.taken._directory.iterdir()
    file.write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        take(gpus, GPUS[1])


def test_a_repeated_release_leaves_alone_what_another_guest_has_by_then(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[0])
    give_back(gpus)
    asyncio.run(gpus.take(OTHER, [GPUS[0]]))
    (proof,) = give_back(gpus)
    assert proof.checked == {"reset_before": True, "driver": "vfio-pci"}
    assert [kernel.driver(one) for one in (GPUS[0], SOUND)] == ["vfio-pci"] * 2
    gpus.taken.forget(OTHER)
    kernel.open_by_process("/dev/vfio/40")
    give_back(gpus)
    assert [kernel.driver(one) for one in (GPUS[0], SOUND)] == ["vfio-pci"] * 2, "something has it open"


def test_a_gpu_that_its_guest_has_open_is_ready_for_the_guest_that_replaces_it(
    kernel: Kernel, gpus: PassedGpus
) -> None:
    take(gpus, GPUS[1])
    kernel.open_by_process("/dev/vfio/41")
    with pytest.raises(VfioNotReady, match="vfio_device_in_use"):
        asyncio.run(gpus.require_ready(ALLOCATION, [GPUS[1]]))
    asyncio.run(gpus.require_ready(ALLOCATION, [GPUS[1]], may_run=True))
    with pytest.raises(VfioNotReady, match="vfio_device_in_use"):
        asyncio.run(gpus.require_ready(OTHER, [GPUS[1]], may_run=True))


def test_files_of_other_names_are_passed_over(kernel: Kernel, gpus: PassedGpus) -> None:
    take(gpus, GPUS[1])
    (gpus.taken._directory / "notes.passed").write_text("{}")
    assert list(gpus.taken.all()) == [ALLOCATION]
    assert gpus.taken.has(ALLOCATION)
    assert not gpus.taken.has(OTHER)
