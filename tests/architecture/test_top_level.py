"""What is at the top of the repository and of each package is listed here: a new module there has to find a folder first."""

from __future__ import annotations

import subprocess

from tests.architecture.measures import name_of, tracked
from tests.architecture.source_modules import PACKAGES, ROOT

ENTRY = {"__init__", "__main__"}
FOLDERS = {*PACKAGES, "tests", "benchmarks", "docs", "deploy"}
MODULES: dict[str, set[str]] = {
    "berth": {"__init__"},
    "orchestrator": {*ENTRY, "app", "crash_points", "heap", "problems", "retries", "settings", "times", "tracing"},
    "worker": {
        *ENTRY,
        "app",
        "connecting",
        "health",
        "metrics",
        "payloads",
        "problems",
        "reconnecting",
        "settings",
        "startup",
        "supervision",
    },
    "outbox_relay": {
        *ENTRY,
        "continuity",
        "crash_points",
        "feed",
        "link",
        "messages",
        "metrics",
        "postgres",
        "problems",
        "publishing",
        "reading",
        "rebuilding",
        "relay",
        "sequencing",
        "settings",
        "state",
        "stream",
    },
    "node_agent": {
        *ENTRY,
        "admission",
        "agent",
        "clock",
        "connection",
        "crash_points",
        "durable_files",
        "effects",
        "enrolment",
        "executor",
        "identity",
        "journal",
        "journal_file",
        "journal_records",
        "journal_state",
        "key_set",
        "key_sets",
        "metrics",
        "pinning",
        "problems",
        "progress",
        "protocol",
        "reporter",
        "settings",
    },
    "migrations": {"__init__", "env", "policies", "privileges", "roles", "upgrading"},
}
"""Modules (of `migrations` also SQL) directly in each package. `test_nouns.py` lists the folders of `orchestrator`."""


def at_the_top(package: str) -> set[str]:
    """Names of the modules directly in a package, also of those not yet committed."""
    paths = [name_of(path).split("/") for path in tracked(f"{package}/*.py", f"{package}/*.sql")]
    return {parts[1].rpartition(".")[0] for parts in paths if len(parts) == 2}


def test_the_top_level_is_what_the_design_names() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {line.split("/")[0] for line in listed if "/" in line and not line.startswith(".")} == FOLDERS


def test_the_top_of_each_package_is_listed() -> None:
    assert {package: at_the_top(package) for package in PACKAGES} == MODULES
