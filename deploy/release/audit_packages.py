"""Looks up the locked packages in the vulnerability database of the package index (pip-audit); part of `make lint`.

Exit status 1: a package has a known vulnerability that `ACCEPTED` does not name. Without network, or behind an index that has no
such data, one line says that nothing was checked: the result of a build must not depend on a server that cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-libvirt.lock"]
"""Those of the product. Another one, of tools in tests, names other versions of the same packages."""
LIMIT_SECONDS = 60
ACCEPTED: dict[str, str] = {}
"""Ids of vulnerabilities that do not apply, and why."""


def vulnerable(report: dict[str, Any]) -> list[str]:
    """One line for each known vulnerability of a package that is not accepted."""
    return [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for package in report["dependencies"]
        for found in package.get("vulns", ())
        if not ACCEPTED.keys() & {found["id"], *found["aliases"]}
    ]


def checked(report: dict[str, Any]) -> int:
    """How many packages the database knows."""
    return sum("skip_reason" not in package for package in report["dependencies"])


def main() -> int:
    """Print one line, or one for each vulnerability."""
    locks = [part for lock in LOCKS for part in ("--requirement", str(lock))]
    command = [sys.executable, "-m", "pip_audit", *locks, "--require-hashes", "--disable-pip"]
    try:
        done = subprocess.run(
            [*command, "--format", "json", "--progress-spinner", "off", "--timeout", "10"],
            capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        print("packages: not checked for known vulnerabilities, the database cannot be reached")
        return 0
    if lines := vulnerable(report):
        print("\n".join(lines), file=sys.stderr)
        return 1
    known, all_packages = checked(report), len(report["dependencies"])
    if not known:
        print("packages: not checked for known vulnerabilities, the package index has no such data")
    else:
        print(f"packages: no known vulnerability in {known} of {all_packages}; the others are not in the database")
    return 0


if __name__ == "__main__":
    sys.exit(main())
