"""`python -m tests.mutants [--noun N] [--name TEXT] [--parallel 2]`: plants each mutant and requires a test to fail.

Each mutant runs in a copy of the working tree, so the tree itself is never touched. A mutant whose named tests pass has
survived: exit 1, unless it is listed in `survivors.py` with its reason. A mutant whose text is not found, or whose tests
fail without it, is an error: exit 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.survivors import SURVIVORS

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300.0
"""For the tests of one mutant; a mutant that hangs its tests is caught."""
FAILED = 1
"""pytest's exit status when tests ran and one failed; 2 to 5 mean that they could not run."""
SETUP_FAILED = "ERROR at setup of "
SETUP_ERROR = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant: `caught`, `survived`, or `broken` (not found, or its tests cannot run)."""

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


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and last lines of these tests in `tree`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"no end within {SECONDS_MAX:g} s"
    if done.returncode == FAILED and SETUP_FAILED in done.stdout:
        return SETUP_ERROR, done.stdout[-1500:]
    return done.returncode, done.stdout[-1500:]


def judge(mutant: Mutant, trees: SimpleQueue[Path]) -> Verdict:
    """Plant the mutant in a free copy of the tree, run its tests, and take it out again."""
    tree = trees.get()
    began = time.monotonic()
    file = tree / mutant.file
    try:
        if not file.is_file() or file.read_text().count(mutant.old) != 1:
            return Verdict(mutant, "broken", 0.0, f"{mutant.file}: the text is not there exactly once")
        text = file.read_text()
        file.write_text(text.replace(mutant.old, mutant.new))
        try:
            status, detail = run_tests(tree, mutant.tests)
        finally:
            file.write_text(text)
        outcome = {0: "survived", FAILED: "caught"}.get(status, "broken")
        return Verdict(mutant, outcome, time.monotonic() - began, detail)
    finally:
        trees.put(tree)


def chosen(noun: str | None, name: str | None) -> list[Mutant]:
    """The mutants of the catalogue that are meant."""
    return [
        mutant for mutant in MUTANTS if (noun is None or mutant.noun == noun) and (name is None or name in mutant.name)
    ]


def main() -> int:
    """Judge the catalogue, one line a mutant; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="plant mutants; each must be caught")
    parser.add_argument("--noun", help="only mutants of this noun")
    parser.add_argument("--name", help="only mutants whose name contains this")
    parser.add_argument("--parallel", type=int, default=2, help="copies of the tree at once (default 2)")
    asked = parser.parse_args()
    mutants = chosen(asked.noun, asked.name)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="berth-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.parallel):
            tree = Path(folder) / str(number)
            copy_tree(tree)
            trees.put(tree)
        with ThreadPoolExecutor(asked.parallel) as pool:
            for verdict in pool.map(lambda mutant: judge(mutant, trees), mutants):
                verdicts.append(verdict)
                print(f"{verdict.outcome:8} {verdict.seconds:5.1f} s  {verdict.mutant.noun}: {verdict.mutant.name}", flush=True)  # noqa: T201
                if verdict.outcome == "broken":
                    print(verdict.detail, flush=True)  # noqa: T201
    survived = [verdict.mutant.name for verdict in verdicts if verdict.outcome == "survived"]
    unlisted = [name for name in survived if name not in SURVIVORS]
    broken = sum(verdict.outcome == "broken" for verdict in verdicts)
    caught = len(verdicts) - len(survived) - broken
    print(f"{len(verdicts)} mutants: {caught} caught, {len(survived)} survived ({len(unlisted)} unlisted), {broken} broken")  # noqa: T201
    return 2 if broken else 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
