"""`berth archive verify` finds every change of an archive."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.cli.deployment.archive.chains import judge
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.manifests import Line, Manifest, describe, digest_of, pack
from berth.cli.deployment.archive.problems import ArchiveProblem


def lines(number: int) -> list[Line]:
    """Two allocations."""
    ids = [f"0197f3a0-0000-7000-8000-{number:08d}{index:04d}" for index in range(2)]
    return [Line(one, f'{{"allocation_id": "{one}", "note": "a\u2028b"}}') for one in ids]


def archive_of(path: Path, manifests: int) -> tuple[Directory, list[str]]:
    """A sound archive, and the names of manifests and segments in turn."""
    archive, previous, names = Directory(path), None, []
    for number in range(1, manifests + 1):
        content = pack(lines(number))
        segment = describe(number, "2026-01-01", lines(number), content)
        manifest = Manifest(number, previous, "2026-01-01T00:00:00Z", "0013", 400, [segment])
        archive.write(segment.name, content)
        archive.write(manifest.name, manifest.content())
        previous = digest_of(manifest.content())
        names += [manifest.name, segment.name]
    return archive, names


def change_segment(path: Path, names: list[str]) -> None:
    content = gzip.decompress((path / names[1]).read_bytes())
    (path / names[1]).write_bytes(gzip.compress(content.replace(b"note", b"nite"), mtime=0))


def change_manifest(path: Path, names: list[str]) -> None:
    (path / names[0]).write_bytes((path / names[0]).read_bytes().replace(b"400", b"401"))


DAMAGES: dict[str, tuple[Callable[[Path, list[str]], object], str]] = {
    "a changed segment": (change_segment, "another SHA-256"),
    "a segment that is missing": (lambda path, names: (path / names[1]).unlink(), "cannot be read"),
    "a changed manifest": (change_manifest, "does not name the SHA-256"),
    "a manifest that is missing": (lambda path, names: (path / names[2]).unlink(), "a manifest is missing"),
    "a first manifest that is missing": (lambda path, names: (path / names[0]).unlink(), ""),
}


def test_a_sound_archive_has_no_violations(tmp_path: Path) -> None:
    archive, _ = archive_of(tmp_path / "archive", 3)
    judged = judge(archive)
    assert (judged.manifests, judged.allocations, judged.violations, judged.unsealed) == (3, 6, [], [])


@pytest.mark.parametrize("name", [name for name in DAMAGES if DAMAGES[name][1]])
def test_a_damage_is_found(tmp_path: Path, name: str) -> None:
    archive, names = archive_of(tmp_path / "archive", 3)
    damage, words = DAMAGES[name]
    damage(tmp_path / "archive", names)
    assert any(words in violation for violation in judge(archive).violations)


def test_a_segment_without_a_manifest_is_named_and_is_no_violation(tmp_path: Path) -> None:
    archive, names = archive_of(tmp_path / "archive", 2)
    (tmp_path / "archive" / names[2]).unlink()
    judged = judge(archive)
    assert (judged.unsealed, judged.violations) == ([names[3]], [])


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    archive, names = archive_of(tmp_path / "archive", 1)
    (tmp_path / "archive" / names[0]).write_text("{}")
    with pytest.raises(ArchiveProblem, match="is no manifest"):
        judge(archive)
