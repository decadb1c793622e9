"""`make provenance`: what was built, from what, as an in-toto statement with a SLSA provenance predicate.

Subjects are the files of `build/dist` (wheel and SBOM) with their SHA-256. Dependencies are the commit, the product's locks and
each wheel that they admit by hash. The statement is not signed: sign it with the release key (docs/how-to/release.md).
Source: in-toto Attestation Framework 1.0, SLSA Provenance 1.0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD_TYPE = "https://berth.example/build/wheel/v1"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"


def git(*arguments: str) -> str:
    """Standard output of a git command in the project's root. Raises CalledProcessError."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def digest_of(path: Path) -> dict[str, str]:
    """The SHA-256 of a file, as a digest set."""
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def statement(files: list[Path]) -> dict[str, Any]:
    """The statement about these files. Times are those of the commit, so the same commit gives the same text."""
    commit = git("rev-parse", "HEAD")
    committed_at = datetime.fromtimestamp(int(git("log", "-1", "--format=%ct")), UTC)
    locks = [ROOT / "requirements.lock", ROOT / "requirements-libvirt.lock"]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": path.name, "digest": digest_of(path)} for path in sorted(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"target": "provenance", "commit": commit},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *({"name": lock.name, "digest": digest_of(lock)} for lock in locks if lock.exists()),
                ],
            },
            "runDetails": {
                "builder": {"id": BUILD_TYPE},
                "metadata": {"startedOn": committed_at.isoformat().replace("+00:00", "Z")},
            },
        },
    }


def main() -> int:
    """Write the statement. Exit status 1: the tree differs from its commit, or there is nothing to describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="what was built")
    parser.add_argument("--out", type=Path, required=True, help="where the statement goes")
    options = parser.parse_args()
    if changed := git("status", "--porcelain"):
        print(f"the working tree differs from its commit; commit or remove:\n{changed}", file=sys.stderr)
        return 1
    options.out.write_text(json.dumps(statement(options.files), indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
