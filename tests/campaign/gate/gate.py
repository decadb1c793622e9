"""The runs of the gate, one after another. A gate that was killed continues: what has a result is not run again."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.campaign.gate.results import ROOT, Result, Results, Run, product_hash, result_of

FIRST_CALM_SEED = 1001
PR_SET_PDEATHSIG = 1
Play = Callable[[Run, Path], dict[str, Any]]
"""Runs a campaign in a directory; returns its report. Raises `CampaignEnded`."""


class CampaignEnded(Exception):
    """A campaign ended without a report; the message says how."""


class ProductChanged(Exception):
    """The product's code changed during a run, so its result belongs to neither version."""


def plan(runs: int, minutes: float, calm: int, first_seed: int = 1) -> list[Run]:
    """So many runs with faults and so many without, each at another seed. Every second one with faults has three servers each."""
    with_faults = [Run(first_seed + number, minutes, calm=False, ha=number % 2 == 1) for number in range(runs)]
    return with_faults + [Run(FIRST_CALM_SEED + number, minutes, calm=True) for number in range(calm)]


def campaign(run: Run, directory: Path) -> dict[str, Any]:
    """Play it in a separate process, whose output is a file beside its report."""
    directory.mkdir(parents=True, exist_ok=True)
    report = directory / f"{run.name}.report.json"
    report.unlink(missing_ok=True)
    # Always the same directory: its next user ends what a killed campaign left running there.
    arguments = ["--minutes", str(run.minutes), "--seed", str(run.seed), "--keep", str(directory / "stage")]
    arguments += ["--fault-every-seconds", "inf"] if run.calm else []
    arguments += ["--ha"] if run.ha else []
    with (directory / f"{run.name}.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaign", *arguments, "--output", str(report)],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT, check=False, preexec_fn=_die_with_parent,
        )  # fmt: skip
    if not report.exists():
        raise CampaignEnded(f"the campaign ended with {done.returncode} and without a report; see {log.name}")
    document: dict[str, Any] = json.loads(report.read_text())
    return document


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Gate:
    """Runs what has no result yet. `say` gets a line about each run."""

    def __init__(
        self,
        directory: Path,
        say: Callable[[str], object],
        play: Play = campaign,
        product: Callable[[], str] = product_hash,
    ) -> None:
        self._directory = directory
        self.results = Results(directory / "results")
        self._say = say
        self._play = play
        self._product = product

    def go_on(self, runs: Sequence[Run], *, again: bool = False) -> list[Result]:
        """Return one result for each run. `again`: those that failed are repeated. Raises `ProductChanged`."""
        product = self._product()
        self._say(f"gate: {len(runs)} runs, product {product[:12]}")
        found = []
        for number, run in enumerate(runs, 1):
            result, known = self.results.read(product, run), " (known)"
            if result is None or (again and not result.passed):
                self._say(f"  {number}/{len(runs)} {run}: runs")
                result, known = self._run(product, run), ""
                self.results.write(result)
            self._say(f"  {number}/{len(runs)} {run}: {line_of(result)}{known}")
            found.append(result)
        return found

    def _run(self, product: str, run: Run) -> Result:
        try:
            result = result_of(product, run, self._play(run, self._directory))
        except CampaignEnded as ended:
            result = Result(product, run, 0, 0, 0, 0, 0, [str(ended)])
        if self._product() != product:
            raise ProductChanged(f"the product's code changed during {run}; start the gate again")
        if result.passed:
            shutil.rmtree(self._directory / "stage", ignore_errors=True)
        return result


def line_of(result: Result) -> str:
    """One run in words."""
    word = "passed" if result.passed else "FAILED: " + "; ".join(result.problems[:5])
    return f"{word}; {result.faults} faults, {result.writes} writes, {result.ambiguous} ambiguous"
