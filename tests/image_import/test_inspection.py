"""What is read of a file without QEMU; every bad file is refused with its reason, and never crashes the reader."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli.images.inspection import Bounds, Inspected, inspect
from berth.cli.images.qcow2 import NotAnImage
from tests.image_import.files import CLUSTER, DISK, disk, qcow2

BOUNDS = Bounds(64 << 20, 8 << 20)


def inspected(directory: Path, content: bytes, bounds: Bounds = BOUNDS) -> Inspected:
    """What the content is, as a file."""
    path = directory / "image"
    path.write_bytes(content)
    return inspect(path, bounds)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("options", "boots"),
    [
        ({}, {"bios"}),
        ({"bios": False, "esp": True}, {"uefi"}),
        ({"bios": False, "gpt": True}, {"uefi"}),
        ({"gpt": True}, {"bios", "uefi"}),
    ],
)
def test_format_size_and_firmware_are_found(
    tmp_path: Path, options: dict[str, bool], boots: set[str], packed: bool
) -> None:
    content = disk(**options)
    assert inspected(tmp_path, content) == Inspected("raw", DISK, DISK, frozenset(boots))
    made = qcow2(content, packed=packed)
    assert inspected(tmp_path, made) == Inspected("qcow2", len(made), DISK, frozenset(boots))


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-c"],
        ["-o", "compat=0.10"],
        ["-o", "cluster_size=2M"],
        ["-o", "extended_l2=on"],
        ["-o", "cluster_size=512"],
    ],
)
def test_what_qemu_writes_is_accepted(tmp_path: Path, options: list[str]) -> None:
    raw, made = tmp_path / "raw", tmp_path / "image"
    raw.write_bytes(disk(gpt=True))
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, made], check=True)
    found = inspect(made, BOUNDS)
    assert (found.format, found.virtual_bytes) == ("qcow2", DISK)
    assert found.boots_with in (frozenset({"bios", "uefi"}), None)
    assert (found.boots_with is None) == ("cluster_size=512" in options), "one cluster is too small for the table"


NAMES_A_FILE = struct.pack(">II", 0x44415441, 8) + b"outside\0"


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"backing": 512, "backing_length": 11}, "backing file"),
        ({"incompatible": 4}, "keeps its data in another file"),
        ({"extension": NAMES_A_FILE}, "names another file"),
        ({"extension": struct.pack(">II", 0xE2792ACA, 0)}, "names another file"),
        ({"extension": struct.pack(">II", 0x0537BE77, 0)}, "encrypted"),
        ({"extension": struct.pack(">II", 0x77777777, 0) * 65}, "extensions"),
        ({"crypt": 2}, "encrypted"),
        ({"snapshots": 2}, "internal snapshots"),
        ({"incompatible": 1}, "not closed properly"),
        ({"incompatible": 2}, "not closed properly"),
        ({"incompatible": 1 << 40}, "features that are not known"),
        ({"version": 1}, "version 1"),
        ({"version": 4}, "version 4"),
        ({"cluster_bits": 8}, "2\\^8 bytes"),
        ({"cluster_bits": 63}, "2\\^63 bytes"),
        ({"size": 0}, "has no bytes"),
        ({"size": 1 << 60, "l1_entries": 0xFFFFFFFF}, "does not cover"),
        ({"size": 1 << 62}, "does not cover"),
        ({"size": 1 << 40, "l1_entries": 1 << 11}, "unpacks to 1099511627776 bytes"),
        ({"l1": 1 << 50}, "behind its end"),
        ({"refcounts": 1 << 50}, "behind its end"),
        ({"length": 1 << 31}, "header claims"),
    ],
)
def test_a_qcow2_that_is_more_than_a_disk_is_refused(tmp_path: Path, header: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAnImage, match=why):
        inspected(tmp_path, qcow2(**header))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (bytes(DISK), "neither a boot sector"),
        (disk() + b"x", "multiple of 512"),
        (b"\x1f\x8b" + bytes(1022), "packed by gzip"),
        (b"\xfd7zXZ\0" + bytes(1018), "packed by xz"),
        (b"KDMV" + bytes(1020), "VMDK"),
        (b"<html>" + bytes(1018), "page of text"),
        (disk(size=9 << 20), "at most 8388608"),
    ],
)
def test_what_is_no_disk_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(NotAnImage, match=why):
        inspected(tmp_path, content)


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAnImage, match="--bytes-max"):
        inspected(tmp_path, disk(), Bounds(DISK - 1, 8 << 20))


@given(cut=st.integers(0, 5 * CLUSTER), at=st.integers(0, 111), noise=st.binary(max_size=24))
def test_a_damaged_header_never_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, noise: bytes
) -> None:
    content = bytearray(qcow2(packed=True))
    content[at : at + len(noise)] = noise
    try:
        found = inspected(tmp_path_factory.mktemp("image"), bytes(content[:cut]))
    except NotAnImage:
        return
    assert found.virtual_bytes <= BOUNDS.virtual_bytes_max
