"""Runs tests in a copy of the working tree, and judges pytest's exit status and the outcome of each test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.runner import recorder

PASSED, FAILED = 0, 1
STATUSES = {
    2: "it was interrupted, or could not collect a file",
    3: "it failed itself",
    4: "wrong usage, or no such test",
    5: "no test",
}
"""What pytest's other exit statuses mean: the tests did not run."""
GENERATED = "/test_contract.py"
"""Tests whose cases schemathesis generates."""
OUTPUT_CHARACTERS = 1_500


class TestsDidNotRun(Exception):
    """The tests could not be run without a mutant, so that nothing can be said of any mutant; the message says why."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: exit status (`None`: it did not end), the outcome of each test by node id, and the output."""

    status: int | None
    outcomes: Mapping[str, str] = field(default_factory=dict)
    output: str = ""

    @property
    def ran(self) -> bool:
        """Whether pytest ran tests, and its exit status agrees with their outcomes."""
        failed = bool({"failed", "error"} & set(self.outcomes.values()))
        return bool(self.outcomes) and self.status == (FAILED if failed else PASSED)

    def problem(self) -> str:
        """Why the tests did not run, of a run that did not."""
        if self.status is None:
            return self.output
        meaning = STATUSES.get(self.status, "its exit status and the outcomes of the tests disagree")
        return f"pytest's exit status is {self.status} ({meaning}):\n{self.output[-OUTPUT_CHARACTERS:]}"


def run_tests(tree: Path, tests: Sequence[str], *options: str, seconds_max: float) -> Run:
    """Run these tests in `tree`, and end them after `seconds_max`."""
    # The plugin of schemathesis takes a second of a processor to import.
    without = [] if any(GENERATED in test for test in tests) else ["-p", "no:schemathesis"]
    with tempfile.TemporaryDirectory(prefix="berth-outcomes-") as folder:
        outcomes = Path(folder) / "outcomes.json"
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *without,
            "-p", recorder.__name__, "--outcomes", str(outcomes), *options, *tests,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds_max, check=False
            )
        except subprocess.TimeoutExpired:
            return Run(None, output=f"the tests did not end within {seconds_max:g} s")
        recorded = json.loads(outcomes.read_text()) if outcomes.exists() else {}
    return Run(done.returncode, recorded, done.stdout or done.stderr)


def below(node_id: str, outcomes: Mapping[str, str]) -> dict[str, str]:
    """The outcomes of a node id's tests: of one test, of all its parameters, or of a file."""
    return {
        test: outcome
        for test, outcome in outcomes.items()
        if test == node_id or test.startswith((f"{node_id}::", f"{node_id}["))
    }


def unfit(node_id: str, run: Run) -> str | None:
    """Why the tests of this node id can catch no mutant, by how they ran without one; `None` if they can."""
    outcomes = below(node_id, run.outcomes)
    for test, outcome in outcomes.items():
        if outcome in ("failed", "error"):
            return f"{test} fails without a mutant"
    if outcomes and set(outcomes.values()) == {"skipped"}:
        return f"{node_id} is skipped without a mutant"
    return None if outcomes else f"{node_id} did not run without a mutant"


def unfit_tests(run: Run, node_ids: Sequence[str]) -> dict[str, str]:
    """Which of these node ids can catch no mutant, and why; raises `TestsDidNotRun` if pytest ran no tests or did not end."""
    if not run.ran:
        raise TestsDidNotRun(f"No mutant was planted, because the tests did not run without one: {run.problem()}")
    reasons = {node_id: unfit(node_id, run) for node_id in node_ids}
    return {node_id: reason for node_id, reason in reasons.items() if reason is not None}


def outcome_of(run: Run) -> tuple[str, str]:
    """The outcome of a mutant by the run of its tests with it, and what to print if it is `broken`."""
    if not run.ran:
        return "broken", run.problem()
    outcomes = set(run.outcomes.values())
    if "failed" in outcomes:
        return "caught", ""
    if "error" in outcomes:
        return "broken", f"the setup of a test failed:\n{run.output[-OUTPUT_CHARACTERS:]}"
    if "passed" not in outcomes:
        return "broken", "every test is skipped with it"
    return "survived", ""
