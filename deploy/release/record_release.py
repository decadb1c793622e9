"""Records a commit as the release that upgrades start from: what it installs, as an archive that tests/upgrade runs.

`python deploy/release/record_release.py [COMMIT]` (default HEAD). Run it at every release, and commit the archive.
"""

from __future__ import annotations

import lzma
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "tests" / "upgrade" / "recorded" / "release.tar.xz"
PATHS = (
    "pyproject.toml", "requirements.lock", "berth", "migrations", "node_agent", "orchestrator", "outbox_relay", "worker",
)  # fmt: skip


def record(commit: str) -> None:
    """Write the archive of a commit; git notes the commit's id in its header."""
    tar = subprocess.run(
        ["git", "archive", "--format=tar", commit, "--", *PATHS], cwd=ROOT, capture_output=True, check=True
    ).stdout
    ARCHIVE.parent.mkdir(exist_ok=True)
    ARCHIVE.write_bytes(lzma.compress(tar, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    record(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
