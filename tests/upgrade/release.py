"""The last release, as `deploy/release/record_release.py` recorded it: its code runs beside the present one."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(__file__).parent / "recorded" / "release.tar.xz"


LOCK = "requirements.lock"


def unpack_release(directory: Path) -> Mapping[str, str]:
    """The environment of a Python that imports the code of the release, unpacked into `directory`."""
    with tarfile.open(ARCHIVE) as archive:
        assert archive.pax_headers["comment"], "git notes the commit"
        archive.extractall(directory, filter="data")
    path = os.pathsep.join(map(str, [directory, *_packages(directory / LOCK)]))
    # Without PYTHONSAFEPATH the working directory, which has the present code, comes first.
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def _packages(lock: Path) -> list[Path]:
    """Where those of the locked packages are that the present lock has not, or in another version; installed once."""
    present = set(_requirements((ROOT / LOCK).read_text()))
    differing = [one for one in _requirements(lock.read_text()) if one not in present]
    if not differing:
        return []
    wanted = "".join(differing)
    target = ROOT / "build" / "upgrade" / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    complete = target / "complete"
    if not complete.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        asked = lock.with_name("differing.lock")
        asked.write_text(wanted)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*install, "--no-deps", "--upgrade", "--target", target, "-r", asked], check=True)
        complete.touch()
    return [target]


def _requirements(lock: str) -> list[str]:
    """Each requirement of a lock with its hashes."""
    return re.findall(r"^[^\s#][^\n]*\n(?:[ \t]+--hash[^\n]*\n)*", lock, re.MULTILINE)


def migrate_as_release(release: Mapping[str, str], database_url: str) -> str:
    """Bring a database to the schema of the release, by its code; return its revision."""
    migrate = "import sys, migrations; print(migrations.__file__, migrations.upgrade(sys.argv[1]))"
    command = [sys.executable, "-c", migrate, database_url]
    ran = subprocess.run(command, env={**os.environ, **release}, capture_output=True, text=True, check=True)
    file, revision = ran.stdout.split()
    assert file.startswith(release["PYTHONPATH"].partition(os.pathsep)[0])
    return revision
