"""`python -m tests.mutants [--selected] [--noun N] [--name TEXT] [--parallel 2]`: plants mutants; a test must catch each.

The tests first run without a mutant; if pytest cannot run them or does not end, no mutant is planted: exit 2. Each mutant
then runs in a copy of the working tree, so the tree itself is never changed. A mutant whose named tests pass has survived:
exit 1, unless `SURVIVORS` lists it with its reason. A mutant whose text is not found, one of whose tests fails or is skipped
without it, or whose tests cannot run with it or do not end, is broken: exit 2.
"""

from __future__ import annotations

import argparse
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
from tests.mutants.runner.runs import TestsDidNotRun, outcome_of, run_tests, unfit_tests
from tests.mutants.selection.rule import PARALLEL, estimate, estimate_without, selected

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300.0
"""For the tests of one mutant."""
WITHOUT_SECONDS_MIN = 10 * SECONDS_MAX
"""For the tests of all mutants without one; longer where `SLOWER` times the expected time is longer."""
SLOWER = 3


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
            run = run_tests(tree, mutant.tests, "-x", "-n", "0", seconds_max=SECONDS_MAX)
        finally:
            rewrite(file, text)
        outcome, detail = outcome_of(run)
        return Verdict(mutant, outcome, time.monotonic() - began, detail)
    finally:
        trees.put(tree)


def unfit_without(tree: Path, mutants: Sequence[Mutant], parallel: int) -> dict[str, str]:
    """The node ids of these mutants whose tests fail, are skipped or do not run without any mutant, each with a sentence."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    seconds_max = max(WITHOUT_SECONDS_MIN, SLOWER * estimate_without(mutants))
    run = run_tests(tree, tests, "-n", str(parallel), seconds_max=seconds_max)
    print(run.output.splitlines()[-1] if run.output else "no output", flush=True)  # noqa: T201
    return unfit_tests(run, tests)


def judge_all(mutants: Sequence[Mutant], parallel: int) -> list[Verdict]:
    """Judge these mutants, `parallel` at once, and print a line for each."""
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="berth-mutants-", ignore_cleanup_errors=True) as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(parallel):
            tree = Path(folder) / str(number)
            copy_tree(tree)
            trees.put(tree)
        unfit = unfit_without(Path(folder) / "0", mutants, parallel)
        runnable = []
        for mutant in mutants:
            reasons = [unfit[test] for test in mutant.tests if test in unfit]
            if reasons:
                verdicts.append(Verdict(mutant, "broken", 0.0, "; ".join(reasons)))
                show(verdicts[-1])
            else:
                runnable.append(mutant)
        with ThreadPoolExecutor(parallel) as pool:
            for verdict in pool.map(lambda mutant: judge(mutant, trees), runnable):
                verdicts.append(verdict)
                show(verdict)
    if unfit:
        print(f"{len(unfit)} node ids can catch no mutant:", *unfit.values(), sep="\n  ", flush=True)  # noqa: T201
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
    try:
        verdicts = judge_all(mutants, chosen.parallel)
    except TestsDidNotRun as problem:
        print(problem)  # noqa: T201
        return 2
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
