"""Records a commit as the version that upgrades start from: its code, as an archive that tests/upgrade/test_upgrade.py runs.

`python deploy/record_baseline.py [COMMIT]` (default HEAD). Run it at every release, and commit the archive.
"""

from __future__ import annotations

import lzma
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHIVE = ROOT / "tests" / "upgrade" / "recorded" / "baseline.tar.xz"
# What an API process and a migration import.
PATHS = (
    "orchestrator",
    "migrations",
    "berth/__init__.py",
    "berth/process",
    "node_agent/__init__.py",
    "node_agent/protocol.py",
)


def record(commit: str) -> None:
    """Write the archive of a commit; git notes the commit's id in its header."""
    tar = subprocess.run(
        ["git", "archive", "--format=tar", commit, "--", *PATHS], cwd=ROOT, capture_output=True, check=True
    ).stdout
    ARCHIVE.parent.mkdir(exist_ok=True)
    ARCHIVE.write_bytes(lzma.compress(tar, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    record(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
