"""`python -m tests.mutants.selection.recording LOG`: records how long the tests that mutants name take, in `seconds.json`.

LOG is the output of the tests of `make test` with `--durations=0 --durations-min=0.3`. A test that it leaves out counts as
`SHORT_SECONDS`. A node id of a file with tests outside `make test` too is not recorded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.selection.rule import RECORD

ROOT = Path(__file__).parents[3]
SHORT_SECONDS = 0.05
DURATION = re.compile(r"^(\d+\.\d+)s (?:setup|call|teardown) +(\S.*)$", re.MULTILINE)


def collected(*options: str) -> set[str]:
    """The ids of the tests that pytest finds in the files that mutants name."""
    files = sorted({test.partition("::")[0] for mutant in MUTANTS for test in mutant.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-n", "0", *options, *files]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in found.splitlines() if "::" in line}


def below(node_id: str, tests: Iterable[str]) -> set[str]:
    """The tests of a node id: of one test, of all its parameters, or of a file."""
    return {test for test in tests if test == node_id or test.startswith((f"{node_id}::", f"{node_id}["))}


def record(log: str) -> dict[str, float]:
    """Seconds of each node id that a mutant names, if `make test` runs all of it."""
    seconds: dict[str, float] = defaultdict(float)
    for took, test in DURATION.findall(log):
        seconds[test] += float(took)
    every, soon = collected(), collected("-m", "not full and not hardware")
    found = {}
    for node_id in sorted({test for mutant in MUTANTS for test in mutant.tests}):
        tests = below(node_id, soon)
        if tests and tests == below(node_id, every):
            found[node_id] = round(sum(max(seconds[test], SHORT_SECONDS) for test in tests), 1)
    return found


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(Path(sys.argv[1]).read_text()), indent=0) + "\n")
