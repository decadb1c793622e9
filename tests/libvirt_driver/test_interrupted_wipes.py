"""A wipe that is cut short anywhere is proven by the next agent; a disk that is not proven is never released."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import DriverFailure, ReleaseOrder
from node_agent.protocol import ReleaseParameters
from tests.libvirt_driver.definitions import ALLOCATION, guest
from tests.libvirt_driver.disk_pool.drivers import FILE, driver_in, guest_of, packages_of_driver, run

EFFECTS = ("pwrite", "fsync", "preadv", "ftruncate", "rename", "unlink")
"""What a wipe calls; those of a kill are before the call, so that each is between two effects."""


class Killed(BaseException):
    """The agent's process ended here: every later effect of it fails, too."""


@pytest.fixture(autouse=True)
def _stand_ins() -> Iterator[None]:
    with packages_of_driver():
        yield


def release_of(driver: Any) -> Any:
    """The plan of a release without grace."""
    return driver.release(ReleaseOrder(ALLOCATION, 7, ReleaseParameters(slots=[2, 3], graceful_seconds=0)))


async def stopped_and_wiped(driver: Any) -> None:
    """The phases up to the wipe, whose proof the agent then writes into its journal."""
    for phase in release_of(driver).phases[:2]:
        await run(phase)


def released(driver: Any) -> list[tuple[str, bool]]:
    """What a whole release says of each disk."""
    plan = release_of(driver)

    async def all_phases() -> None:
        for phase in plan.phases:
            await run(phase)

    asyncio.run(all_phases())
    return [(one["device"], one["proven"]) for one in plan.result().evidence["devices"]]


def killed_before(number: int, patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Kill the process before its effect of this number; returns what counts the effects."""
    seen = 0
    lock = threading.Lock()

    def struck(call: Callable[..., Any]) -> Callable[..., Any]:
        def strike(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            with lock:
                seen += 1
                if seen > number:
                    raise Killed
            return call(*arguments, **options)

        return strike

    for name in EFFECTS:
        patch.setattr(os, name, struck(getattr(os, name)))
    return lambda: seen


def test_a_wipe_that_is_killed_before_any_of_its_effects_is_proven_by_the_next_agent(tmp_path: Path) -> None:
    number, was_killed = 0, True
    while was_killed:
        node = tmp_path / f"node-{number}"
        directory = guest_of(driver_in(node, None), file=b"tenant" * 1000)
        with pytest.MonkeyPatch.context() as patch:
            count = killed_before(number, patch)
            try:
                asyncio.run(stopped_and_wiped(driver_in(node, None)))
            except Killed:
                pass
            was_killed = count() > number
        assert released(driver_in(node, None)) == [(FILE, True)], f"killed before effect {number}"
        assert not directory.exists()
        number += 1
    assert number > len(EFFECTS)


@pytest.mark.parametrize("stopped_in", ["fsync", "ftruncate"])
def test_a_wipe_of_an_agent_that_is_stopped_is_proven_by_the_next_one(tmp_path: Path, stopped_in: str) -> None:
    driver = driver_in(tmp_path / "node", None)
    directory = guest_of(driver, file=b"tenant" * 1000)
    entered, goes_on = threading.Event(), threading.Event()
    call: Callable[..., Any] = getattr(os, stopped_in)

    def slow(descriptor: int, *arguments: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name in ("disk.qcow2", "disk.wiped"):
            entered.set()
            goes_on.wait(30)
        return call(descriptor, *arguments)

    async def scene() -> None:
        wiping = asyncio.create_task(stopped_and_wiped(driver))
        await asyncio.to_thread(entered.wait, 30)
        wiping.cancel()
        asyncio.get_running_loop().call_soon(goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await wiping

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, stopped_in, slow)
        asyncio.run(scene())
    assert released(driver_in(tmp_path / "node", None)) == [(FILE, True)]
    assert not directory.exists()


def test_the_zeros_of_a_wiped_disk_are_no_name_of_a_volume(tmp_path: Path) -> None:
    """They are there until it is emptied, or its directory is removed."""
    directory = guest_of(driver_in(tmp_path / "node", None))
    directory.wiped_disk.write_bytes(bytes(4096))
    assert (directory.is_wiped, directory.volume, directory.device) == (True, None, FILE)


def test_a_guest_whose_disk_is_gone_keeps_its_lease_until_the_disk_is_back(tmp_path: Path) -> None:
    driver = driver_in(tmp_path / "node", None)
    directory = guest_of(driver, file=b"tenant" * 1000)
    driver._node.leases.take([2, 3], ALLOCATION, 7)
    aside = directory.disk.rename(tmp_path / "moved by hand")
    for _ in range(2):
        with pytest.raises(DriverFailure, match=f"nothing is known of the disk {FILE}: it was not there, or empty"):
            released(driver)
        assert set(driver._node.leases.held()) == {2, 3}
    aside.rename(directory.disk)
    assert released(driver) == [(FILE, True)]
    assert driver._node.leases.held() == {}


def test_an_empty_disk_is_never_proven(tmp_path: Path) -> None:
    """As an agent of the version before left it, which marked a disk only after it had emptied it."""
    driver = driver_in(tmp_path / "node", None)
    directory = guest_of(driver, file=b"")
    for _ in range(2):
        with pytest.raises(DriverFailure, match=f"nothing is known of the disk {FILE}: it was not there, or empty"):
            released(driver)
    assert not directory.is_wiped


def test_what_is_left_of_a_provision_without_a_disk_is_removed(tmp_path: Path) -> None:
    driver = driver_in(tmp_path / "node", None)
    directory, record = guest(driver._node.allocations, state="provisioning")
    directory.path.mkdir()
    directory.save(record)
    assert released(driver) == [(FILE, False)]
    assert not directory.exists(), "no guest was up: there is no disk to keep it for"
