"""A device is overwritten, read back and discarded: a loop device, with what the kernel maps said by a stand-in of dmsetup."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.disk_pool import zeroing
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError
from node_agent.drivers.libvirt.disk_pool.zeroing import zero_volume
from tests.libvirt_driver.disk_pool.fake_lvm import FakeLvm

MIB = 1 << 20
SIZE = 8 * MIB


@pytest.fixture
def medium(tmp_path: Path, lvm: FakeLvm) -> Iterator[tuple[Path, Path]]:
    """A file, and a loop device on it. The stand-in says that all of it is mapped."""
    if os.geteuid() != 0 or shutil.which("losetup", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("a loop device needs root and losetup")
    file = tmp_path / "medium"
    file.write_bytes(bytes(SIZE))
    made = subprocess.run(["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"there is no loop device: {made.stderr.strip()}")
    lvm.program("dmsetup", f"echo 0 {SIZE // 512} thin {SIZE // 512} {SIZE // 512 - 1}")
    yield file, Path(made.stdout.strip())
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=False)


def write(device: Path, place: int, content: bytes = b"tenant" * 100) -> None:
    """Write to the device, as far as its medium."""
    with device.open("r+b") as opened:
        opened.seek(place)
        opened.write(content)
        os.fsync(opened.fileno())


def test_all_that_is_not_zero_is_overwritten_and_nothing_else(medium: tuple[Path, Path]) -> None:
    file, device = medium
    for place in (0, 3 * MIB - 10, SIZE - 600):
        write(device, place)
    zeroed = zero_volume(device, threading.Event(), 5)
    assert file.read_bytes().strip(b"\0") == b""
    assert zeroed.overwritten_bytes == 4 * zeroing.PIECE_BYTES, "the second lies in two pieces"
    assert (zeroed.mapped_bytes, zeroed.read_back_bytes) == (SIZE, SIZE)
    assert not zeroed.discarded, "the stand-in says that it is mapped still"
    assert zero_volume(device, threading.Event(), 5).overwritten_bytes == 0


def test_what_the_kernel_does_not_map_is_neither_read_nor_written(medium: tuple[Path, Path], lvm: FakeLvm) -> None:
    _, device = medium
    lvm.program("dmsetup", f"echo 0 {SIZE // 512} thin {MIB // 512} {MIB // 512 - 1}")
    write(device, 0)
    zeroed = zero_volume(device, threading.Event(), 5)
    assert (zeroed.overwritten_bytes, zeroed.read_back_bytes) == (zeroing.PIECE_BYTES, MIB)


def test_it_is_zero_before_it_is_discarded(medium: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file, device = medium
    write(device, MIB)
    seen: list[bytes] = []

    def discard(_descriptor: int, _size: int) -> bool:
        seen.append(file.read_bytes().strip(b"\0"))
        return False

    monkeypatch.setattr(zeroing, "_discard", discard)
    zero_volume(device, threading.Event(), 5)
    assert seen == [b""]


def test_a_write_that_does_not_arrive_or_is_cut_short_is_found(
    medium: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, device = medium
    write(device, MIB)
    monkeypatch.setattr(os, "pwritev", lambda _descriptor, parts, _place: len(parts[0]))
    with pytest.raises(PoolError, match="is not zero behind 1048576 after it was overwritten"):
        zero_volume(device, threading.Event(), 5)
    monkeypatch.setattr(os, "pwritev", lambda _descriptor, _parts, _place: 512)
    with pytest.raises(PoolError, match="was cut short"):
        zero_volume(device, threading.Event(), 5)
    assert b"tenant" in file.read_bytes()


def test_a_device_that_is_held_and_a_wipe_that_is_interrupted(medium: tuple[Path, Path]) -> None:
    _, device = medium
    holder = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(PoolError, match="cannot be opened for the wipe: Device or resource busy"):
            zero_volume(device, threading.Event(), 5)
    finally:
        os.close(holder)
    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        zero_volume(device, stop, 5)


def test_a_file_in_place_of_a_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: 0)
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(PoolError, match=r"no block device|cannot be opened"):
        zero_volume(tmp_path / "file", threading.Event(), 5)
    assert (tmp_path / "file").read_bytes() == b"kept"
