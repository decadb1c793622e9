"""Disks on real files with the real qemu-img: images that are refused, an encrypted overlay, and its wipe."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from node_agent.drivers.libvirt import disks
from node_agent.drivers.libvirt.disks import ImageRefused, ImageTooLarge, create_disk, inspect_image, overwrite

MIB = 1 << 20

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")


def make(path: Path, *options: str, form: str = "qcow2", size: int = 64 * MIB) -> Path:
    """An image of this format."""
    subprocess.run(["qemu-img", "create", "-q", "-f", form, *options, str(path), str(size)], check=True)
    return path


@needs_qemu_img
def test_qcow2_and_raw_images_are_accepted(tmp_path: Path) -> None:
    for form in ("qcow2", "raw"):
        found = inspect_image(make(tmp_path / form, form=form), 64 * MIB)
        assert (found.format, found.virtual_bytes) == (form, 64 * MIB)


@needs_qemu_img
@pytest.mark.parametrize(
    ("options", "form", "why"),
    [
        (["-b", "/etc/passwd", "-F", "raw", "-u"], "qcow2", "names another file"),
        (["-o", "data_file=outside.raw"], "qcow2", "names another file"),
        ([], "vmdk", "its format is vmdk"),
    ],
)
def test_an_image_that_is_more_than_a_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], form: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageRefused, match=why):
        inspect_image(make(tmp_path / "image", *options, form=form), 64 * MIB)


@needs_qemu_img
def test_an_image_that_unpacks_to_more_than_the_disk_is_refused(tmp_path: Path) -> None:
    bomb = make(tmp_path / "bomb", size=1 << 50)
    assert bomb.stat().st_size < 64 * MIB
    with pytest.raises(ImageTooLarge, match="when unpacked"):
        inspect_image(bomb, 64 * MIB)


@needs_qemu_img
@pytest.mark.parametrize(("form", "stated"), [("qcow2", "raw"), ("raw", "qcow2")])
def test_an_image_of_another_format_than_stated_is_refused(tmp_path: Path, form: str, stated: str) -> None:
    image = make(tmp_path / "image", form=form)
    assert inspect_image(image, 64 * MIB, form).format == form
    with pytest.raises(ImageRefused, match=f"the catalogue states {stated}"):
        inspect_image(image, 64 * MIB, stated)


@needs_qemu_img
def test_a_disk_is_encrypted_private_and_made_once(tmp_path: Path) -> None:
    base = make(tmp_path / "base")
    disk, key = tmp_path / "disk.qcow2", tmp_path / "disk.key"
    create_disk(disk, key, base, "qcow2", 128 * MIB)
    assert {oct(file.stat().st_mode & 0o777) for file in (disk, key)} == {"0o600"}
    assert b"LUKS" in disk.read_bytes()
    before = disk.read_bytes(), key.read_bytes()
    create_disk(disk, key, base, "qcow2", 128 * MIB)
    assert (disk.read_bytes(), key.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "disk.key", "disk.qcow2"]


@pytest.mark.parametrize("failures", [1, disks.CREATE_TRIES_MAX])
def test_a_disk_is_tried_again_if_qemu_could_not_measure_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    tool, count = tmp_path / "qemu-img", tmp_path / "count"
    tool.write_text(
        f'#!/bin/sh\necho x >>{count}\n[ $(wc -l <{count}) -gt {failures} ] || '
        f'{{ echo "qemu-img: d: {disks.UNMEASURED}" >&2; exit 1; }}\nfor last; do :; done\n'
        'while [ $# -gt 2 ]; do shift; done; : >"$1"\n'
    )  # fmt: skip
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    disk = tmp_path / "disk.qcow2"
    if failures < disks.CREATE_TRIES_MAX:
        create_disk(disk, tmp_path / "disk.key", tmp_path, "raw", MIB)
        assert disk.exists()
    else:
        with pytest.raises(OSError, match=disks.UNMEASURED):
            create_disk(disk, tmp_path / "disk.key", tmp_path, "raw", MIB)
        assert not disk.exists()
        assert len(count.read_text().splitlines()) == disks.CREATE_TRIES_MAX


def test_the_size_of_a_full_disk_is_asked_again_if_qemu_could_not_measure_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, seen = tmp_path / "qemu-img", tmp_path / "seen"
    tool.write_text(
        f"#!/bin/sh\nif [ -e {seen} ]; then echo '{{\"fully-allocated\": 77}}'; exit; fi\n"
        f'echo "$*" >{seen}; echo "qemu-img: {disks.UNMEASURED}" >&2; exit 1\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert disks.full_bytes(tmp_path / "disk.key", MIB) == 77
    assert "hash-alg=sha512" in seen.read_text(), "which QEMU can measure"


def test_what_a_file_occupies_is_overwritten_and_read_back(tmp_path: Path) -> None:
    file, seen = tmp_path / "disk", tmp_path / "seen"
    with file.open("wb") as written:
        for place in (0, 7 * MIB, 40 * MIB + 4096):
            written.seek(place)
            written.write(b"tenant" * 1000)
        written.truncate(64 * MIB)
    occupied = file.stat().st_blocks * 512
    seen.hardlink_to(file)
    wiped = overwrite(file, threading.Event())
    assert occupied <= wiped.bytes < 4 * MIB
    assert wiped.samples == 3
    assert b"tenant" not in seen.read_bytes()


def test_a_wipe_that_does_not_reach_the_medium_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "disk"
    file.write_bytes(b"tenant" * 1000)
    monkeypatch.setattr(os, "pwrite", lambda _descriptor, content, _place: len(content))
    with pytest.raises(OSError, match="is not zero"):
        overwrite(file, threading.Event())
    assert file.read_bytes() == b"tenant" * 1000


def test_a_write_that_is_cut_short_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen, write = tmp_path / "disk", tmp_path / "seen", os.pwrite
    file.write_bytes(b"tenant" * 100_000)
    seen.hardlink_to(file)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, place: write(descriptor, content[:1000], place))
    monkeypatch.setattr(os, "ftruncate", lambda _descriptor, _size: None)
    overwrite(file, threading.Event())
    assert not seen.read_bytes().strip(b"\0")


def test_a_wipe_of_what_is_not_there_and_an_interrupted_one(tmp_path: Path) -> None:
    assert overwrite(tmp_path / "absent", threading.Event()).bytes == 0
    file, stop = tmp_path / "disk", threading.Event()
    file.write_bytes(b"tenant")
    stop.set()
    with pytest.raises(InterruptedError):
        overwrite(file, stop)


def test_a_wipe_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    (tmp_path / "disk").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        overwrite(tmp_path / "disk", threading.Event())
    assert outside.read_bytes() == b"kept"
