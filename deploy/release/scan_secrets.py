"""Looks for keys, passwords and tokens in the tracked files (detect-secrets); part of `make lint`.

Exit status 1: a file holds what looks like a secret and `accepted_secrets.txt` does not name it. Values that tests and examples
make up are accepted there by the SHA-1 of the value: a changed value is looked at again. `--accept` writes the file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = ROOT / "deploy" / "release" / "accepted_secrets.txt"
PLUGINS = (
    "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "GitHubTokenDetector", "GitLabTokenDetector",
    "JwtTokenDetector", "KeywordDetector", "NpmDetector", "PrivateKeyDetector", "PypiTokenDetector", "SlackDetector",
    "StripeDetector",
)  # fmt: skip
ENTROPY_PLUGINS = ({"name": "Base64HighEntropyString", "limit": 4.5}, {"name": "HexHighEntropyString", "limit": 3.0})
NOT_SCANNED = re.compile(
    r"requirements\.lock|deploy/release/accepted_secrets\.txt|.*generations\.txt|.*\.csv|docs/reference/.*|.*/histories/.*"
)
"""Hashes, recorded data and generated pages, whose entropy is high and whose sources are scanned."""
PROCESSES = 2


def tracked() -> list[str]:
    """The files to scan, below the project's root: those that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return [name for name in listed if not NOT_SCANNED.fullmatch(name) and (ROOT / name).is_file()]


def found_in(files: list[str], root: Path = ROOT) -> dict[str, str]:
    """What looks like a secret: for each `path type hash`, where it is."""
    plugins = [*({"name": name} for name in PLUGINS), *ENTROPY_PLUGINS]
    with transient_settings({"plugins_used": plugins}):
        secrets = SecretsCollection(root=str(root))
        secrets.scan_files(*files, num_processors=PROCESSES)
    return {
        f"{name} {secret.type.replace(' ', '-')} {secret.secret_hash}": f"{name}:{secret.line_number}: {secret.type}"
        for name, secret in secrets
    }


def main() -> int:
    """Print the places, without the values."""
    found = found_in(tracked())
    if sys.argv[1:] == ["--accept"]:
        ACCEPTED.write_text("".join(f"{line}\n" for line in sorted(found)))
        return 0
    accepted = set(ACCEPTED.read_text().splitlines())
    unknown = [place for line, place in sorted(found.items()) if line not in accepted]
    if unknown:
        print("looks like a secret:", *unknown, sep="\n", file=sys.stderr)
        print("remove it, or accept made-up values by python deploy/release/scan_secrets.py --accept", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
