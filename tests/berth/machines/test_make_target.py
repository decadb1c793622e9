"""`make demo DRIVER=redfish` on a machine without what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRESENT = ("bash", "env", "find", "id", "make")


def test_one_line_says_what_to_install(tmp_path: Path) -> None:
    for name in PRESENT:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    command = ["make", "--no-print-directory", "--old-file=.venv/.installed", "demo", "DRIVER=redfish"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    (line,) = done.stdout.splitlines()
    assert line.startswith("the deploy medium needs: apt-get install --no-install-recommends ")
    assert {"mmdebstrap", "xorriso", "qemu-system-x86", "openssh-client"} <= set(line.split())
