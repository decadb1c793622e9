"""`python -m tests.mutants [--selected] [--noun N] [--name TEXT] [--parallel 2]`: plants mutants; a test must catch each.

The tests first run without a mutant. Each mutant then runs in a copy of the working tree, so the tree itself is never
changed. A mutant whose named tests pass has survived: exit 1, unless `SURVIVORS` lists it with its reason. A mutant
whose text is not found, or whose tests fail without it, cannot run or do not end, is broken: exit 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import SURVIVORS, Mutant
from tests.mutants.selection.rule import PARALLEL, estimate, selected

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300.0
"""For the tests of one mutant; for those of all without a mutant ten times as long."""
PASSED, FAILED = 0, 1
"""pytest's exit statuses when tests ran; 2 to 5 mean that they could not run."""
NOT_RUN = -1
GENERATED = "/test_contract.py"
"""Tests whose cases schemathesis generates."""
SETUP_FAILED = "ERROR at setup of "


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one mutant: `caught`, `survived`, or `broken` (not found, or its tests cannot run)."""

    mutant: Mutant
    outcome: str
    seconds: float
    detail: str = ""


def copy_tree(target: Path) -> None:
    """Copy what git tracks, and what it would, to `target`."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_tests(tree: Path, tests: Sequence[str], *options: str, seconds_max: float = SECONDS_MAX) -> tuple[int, str]:
    """Exit status and output of these tests in `tree`; `NOT_RUN` if a fixture failed or they did not end."""
    # The plugin of schemathesis takes a second of a processor to import.
    without = [] if any(GENERATED in test for test in tests) else ["-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *without, *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired:
        return NOT_RUN, f"no end within {seconds_max:g} s"
    status = NOT_RUN if done.returncode == FAILED and SETUP_FAILED in done.stdout else done.returncode
    return status, done.stdout or done.stderr


def rewrite(file: Path, text: str) -> None:
    """Write a source file, and delete its bytecode, which Python trusts by time in seconds and size."""
    file.write_text(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def judge(mutant: Mutant, trees: SimpleQueue[Path]) -> Verdict:
    """Plant the mutant in a free copy of the tree, run its tests, and restore the file."""
    tree = trees.get()
    began = time.monotonic()
    file = tree / mutant.file
    try:
        if not file.is_file() or file.read_text().count(mutant.old) != 1:
            return Verdict(mutant, "broken", 0.0, f"{mutant.file}: the text is not there exactly once")
        text = file.read_text()
        rewrite(file, text.replace(mutant.old, mutant.new))
        try:
            status, output = run_tests(tree, mutant.tests, "-x", "-n", "0")
        finally:
            rewrite(file, text)
        outcome = {PASSED: "survived", FAILED: "caught"}.get(status, "broken")
        return Verdict(mutant, outcome, time.monotonic() - began, output[-1_500:])
    finally:
        trees.put(tree)


def failing_without(tree: Path, mutants: Sequence[Mutant], parallel: int) -> list[str]:
    """The tests of these mutants that fail without any mutant, as pytest's summary names them."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    _, output = run_tests(tree, tests, "-rfE", "-n", str(parallel), seconds_max=10 * SECONDS_MAX)
    print(output.splitlines()[-1] if output else "no output", flush=True)  # noqa: T201
    return [line.partition(" ")[2] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]


def judge_all(mutants: Sequence[Mutant], parallel: int) -> list[Verdict]:
    """Judge these mutants, `parallel` at once, and print a line for each."""
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="berth-mutants-", ignore_cleanup_errors=True) as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(parallel):
            tree = Path(folder) / str(number)
            copy_tree(tree)
            trees.put(tree)
        failing = failing_without(Path(folder) / "0", mutants, parallel)
        runnable = []
        for mutant in mutants:
            if any(line.startswith(mutant.tests) for line in failing):
                verdicts.append(Verdict(mutant, "broken", 0.0, "its tests fail without it"))
                show(verdicts[-1])
            else:
                runnable.append(mutant)
        with ThreadPoolExecutor(parallel) as pool:
            for verdict in pool.map(lambda mutant: judge(mutant, trees), runnable):
                verdicts.append(verdict)
                show(verdict)
    return verdicts


def show(verdict: Verdict) -> None:
    """Print one verdict."""
    mutant = verdict.mutant
    print(f"{verdict.outcome:8} {verdict.seconds:5.1f} s  {mutant.noun}: {mutant.name}", flush=True)  # noqa: T201
    if verdict.outcome == "broken":
        print(verdict.detail, flush=True)  # noqa: T201


def main() -> int:
    """Judge the chosen mutants; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="plant mutants; each must be caught")
    parser.add_argument(
        "--selected", action="store_true", help="only the quickest mutants of each noun (tests/mutants/selection)"
    )
    parser.add_argument("--noun", help="only mutants of this noun")
    parser.add_argument("--name", help="only mutants whose name contains this text")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help=f"mutants that run at once (default {PARALLEL})")
    chosen = parser.parse_args()
    mutants = [
        mutant for mutant in (selected(MUTANTS) if chosen.selected else MUTANTS)
        if chosen.noun in (None, mutant.noun) and (chosen.name is None or chosen.name in mutant.name)
    ]  # fmt: skip
    began = time.monotonic()
    print(f"{len(mutants)} mutants, about {estimate(mutants) / 60:.0f} min on two idle cores", flush=True)  # noqa: T201
    verdicts = judge_all(mutants, chosen.parallel)
    survived = [verdict.mutant.name for verdict in verdicts if verdict.outcome == "survived"]
    unlisted = [name for name in survived if name not in SURVIVORS]
    broken = sum(verdict.outcome == "broken" for verdict in verdicts)
    caught = len(verdicts) - len(survived) - broken
    print(  # noqa: T201
        f"{len(verdicts)} mutants in {time.monotonic() - began:.0f} s:"
        f" {caught} caught, {len(survived)} survived ({len(unlisted)} unlisted), {broken} broken"
    )
    return 2 if broken else 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
