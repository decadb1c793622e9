"""The recorded release is the newest one of the changelog: its version, its date and its commit."""

from __future__ import annotations

import re
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.release.record_release import ARCHIVE as RECORDED
from deploy.release.record_release import PATHS, NoRelease, record
from tests.upgrade.release import ARCHIVE, ROOT

RELEASE = re.compile(
    r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)\n\nCommit `([0-9a-f]{40})`, tag `v(\S+)`\.$", re.MULTILINE
)


class Release(NamedTuple):
    """What identifies a release."""

    version: str
    date: str
    commit: str


def releases_of(changelog: str) -> list[Release]:
    """The releases of a changelog, the newest first. Each heading but `Unreleased` has a date, a commit and a tag."""
    found = [match.groups() for match in RELEASE.finditer(changelog)]
    assert len(found) == len(re.findall(r"^## (?!Unreleased$)", changelog, re.MULTILINE))
    assert all(tag == version for version, _, _, tag in found)
    return [Release(version, date, commit) for version, date, commit, _ in found]


def recorded(archive: Path) -> Release:
    """The release in an archive: git notes the commit in its header, and the commit's time at each file."""
    with tarfile.open(archive) as content:
        project = content.getmember("pyproject.toml")
        file = content.extractfile(project)
        assert file is not None
        version = re.search(r'^version = "([^"]+)"$', file.read().decode(), re.MULTILINE)
        assert version is not None
        date = datetime.fromtimestamp(project.mtime, UTC).date().isoformat()
        return Release(version.group(1), date, content.pax_headers["comment"])


def test_the_recorded_release_is_the_newest_of_the_changelog() -> None:
    assert recorded(ARCHIVE) == releases_of((ROOT / "CHANGELOG.md").read_text())[0]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose one commit has the version 7.8.9 and no heading for it."""
    for name in PATHS:
        path = tmp_path / name if "." in name else tmp_path / name / "file.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text('version = "7.8.9"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    """The output of git in this directory."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    ran = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(directory: Path) -> str:
    """Commit everything; return the id."""
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "Change")
    return git(directory, "rev-parse", "HEAD")


def test_a_tagged_release_is_recorded_with_its_commit_in_the_changelog(repository: Path) -> None:
    date = git(repository, "show", "--no-patch", "--date=format-local:%Y-%m-%d", "--format=%cd")
    changelog = repository / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## Unreleased\n\n## 7.8.9 - {date}\n\nThe first.\n")
    released = commit(repository)
    git(repository, "tag", "v7.8.9")
    (repository / "pyproject.toml").write_text('version = "8.0.0"\n')
    commit(repository)

    for _ in range(2):
        assert record("v7.8.9", repository) == "7.8.9"
        found = releases_of(changelog.read_text())
        assert [(one.version, one.commit) for one in found] == [("7.8.9", released)]
        assert recorded(repository / RECORDED)[::2] == ("7.8.9", released)


def test_a_commit_without_a_heading_for_its_version_is_not_recorded(repository: Path) -> None:
    with pytest.raises(NoRelease, match=r"has no heading `## 7\.8\.9 - <date>`"):
        record("HEAD", repository)
    assert not (repository / RECORDED).exists()
