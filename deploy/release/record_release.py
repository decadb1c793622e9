"""Records a commit as the release that upgrades start from: what it installs, as an archive that tests/upgrade runs.

`python deploy/release/record_release.py [COMMIT]` (default HEAD; give the tag of the release). The commit must have a version in
`pyproject.toml` and a heading with a date for it in `CHANGELOG.md`. It writes the archive, and the commit and its tag below the
heading of the present `CHANGELOG.md`; commit both. `tests/upgrade/test_release.py` compares them.
"""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = Path("tests", "upgrade", "recorded", "release.tar.xz")
PATHS = (
    "pyproject.toml", "requirements.lock", "berth", "migrations", "node_agent", "orchestrator", "outbox_relay", "worker",
)  # fmt: skip


class NoRelease(Exception):
    """The commit is no release; the message is one sentence that says why."""


def record(commit: str, root: Path = ROOT) -> str:
    """Write the archive of a commit, in whose header git notes its id, and note the id in the changelog; return the version.

    Raises `NoRelease`.
    """

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout

    identity = git("rev-parse", f"{commit}^{{commit}}").decode().strip()
    found = re.search(r'^version = "([^"]+)"$', git("show", f"{identity}:pyproject.toml").decode(), re.MULTILINE)
    if found is None:
        raise NoRelease(f"pyproject.toml of {identity} has no version")
    version = found.group(1)
    heading = re.compile(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", re.MULTILINE)
    if heading.search(git("show", f"{identity}:CHANGELOG.md").decode()) is None:
        raise NoRelease(f"CHANGELOG.md of {identity} has no heading `## {version} - <date>`")
    changelog = root / "CHANGELOG.md"
    text, line = changelog.read_text(), f"Commit `{identity}`, tag `v{version}`."
    if line not in text:
        changelog.write_text(heading.sub(lambda at: f"{at.group(0)}\n\n{line}", text, count=1))
    tar = git("archive", "--format=tar", identity, "--", *PATHS)
    (root / ARCHIVE).parent.mkdir(parents=True, exist_ok=True)
    (root / ARCHIVE).write_bytes(lzma.compress(tar, preset=9 | lzma.PRESET_EXTREME))
    return version


if __name__ == "__main__":
    try:
        record(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    except NoRelease as problem:
        sys.exit(str(problem))
