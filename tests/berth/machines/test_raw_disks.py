"""Reading a raw disk finds a planted marker wherever it is, and one byte that is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from berth.local.demo.machines.steps import NotProven
from berth.local.demo.machines.tenancies import require_marker, require_nothing, require_wiped
from berth.local.machines.plan import DISK_BYTES, DISK_SERIAL
from berth.local.machines.raw_disks import PIECE_BYTES, RawContent, read_raw

MARKER = b"BERTH-MARKER-0123456789abcdef"
BYTES = 3 * PIECE_BYTES


def disk(path: Path, *written: tuple[int, bytes]) -> Path:
    """A sparse disk with this content."""
    with path.open("wb") as file:
        file.truncate(BYTES)
        for at, content in written:
            file.seek(at)
            file.write(content)
    return path


@pytest.mark.parametrize(
    "at",
    [0, 1000, PIECE_BYTES - len(MARKER), PIECE_BYTES - 1, PIECE_BYTES - 7, 2 * PIECE_BYTES - 12, BYTES - len(MARKER)],
)
def test_a_planted_marker_is_found(at: int, tmp_path: Path) -> None:
    found = read_raw(disk(tmp_path / "disk", (at, MARKER)), MARKER)
    assert found == RawContent(BYTES, len(MARKER), True)
    assert require_marker(found)
    with pytest.raises(NotProven, match="still on the raw disk"):
        require_nothing(found)


def test_a_part_of_the_marker_is_no_marker_but_is_content(tmp_path: Path) -> None:
    found = read_raw(disk(tmp_path / "disk", (5, MARKER[:-1])), MARKER)
    assert found == RawContent(BYTES, len(MARKER) - 1, False)


def test_an_empty_disk_has_nothing(tmp_path: Path) -> None:
    assert read_raw(disk(tmp_path / "disk"), MARKER) == RawContent(BYTES, 0, False)


def test_the_control_refuses_a_disk_on_which_the_marker_was_never_seen() -> None:
    with pytest.raises(NotProven, match="would prove nothing"):
        require_marker(RawContent(DISK_BYTES, 4711, False))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (RawContent(DISK_BYTES, 1, False), "1 bytes of the raw disk are not zero"),
        (RawContent(DISK_BYTES - 1, 0, False), "were read, it has"),
        (RawContent(0, 0, False), "were read, it has"),
        (RawContent(DISK_BYTES, 29, True), "still on the raw disk"),
    ],
)
def test_less_than_every_byte_or_more_than_none_in_use_is_no_proof(content: RawContent, why: str) -> None:
    with pytest.raises(NotProven, match=why):
        require_nothing(content)


def test_every_byte_read_and_none_in_use_is_the_proof() -> None:
    assert require_nothing(RawContent(DISK_BYTES, 0, False)) == f"{DISK_BYTES} bytes read, all zero"


WIPED: dict[str, Any] = {
    "serial": DISK_SERIAL, "size_bytes": DISK_BYTES, "read_bytes": DISK_BYTES, "nonzero_bytes_found": False, "method": "zero_out",
}  # fmt: skip


def test_one_disk_of_which_all_was_read_back_is_a_reported_wipe() -> None:
    assert "zero_out" in require_wiped([WIPED])


@pytest.mark.parametrize(
    "disks",
    [
        [],
        [WIPED, WIPED],
        [WIPED | {"serial": "DISK2"}],
        [WIPED | {"read_bytes": DISK_BYTES - 1}],
        [WIPED | {"nonzero_bytes_found": True}],
    ],
)
def test_another_disk_or_less_of_it_is_no_reported_wipe(disks: list[dict[str, Any]]) -> None:
    with pytest.raises(NotProven, match="was expected; reported"):
        require_wiped(disks)
