"""`python -m tests.campaign.soak --minutes 90 --seed 7`: exit code 0 if nothing grew and no promise was broken, else 1.

`--report FILE` runs nothing: it writes the page and the plots of an earlier soak again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.casting import CampaignOptions
from tests.campaign.gate.results import ROOT
from tests.campaign.history import History
from tests.campaign.running import run_on
from tests.campaign.soak.judging import judge
from tests.campaign.soak.reporting import write_report
from tests.campaign.soak.samples import Soak, read_soak
from tests.campaign.soak.sampling import Sampler
from tests.campaign.stage import Stage

LEAST_MINUTES = 1.0


NOT_JUDGED = "the checks of the campaign had not ended"
"""The violation of a soak that was stopped before."""


def run_soak(options: CampaignOptions, interval_seconds: float, file: Path) -> Soak:
    """Play a campaign without faults, with a sample at every interval; `file` has what was measured so far."""
    samplers: list[Sampler] = []

    def soak(sampler: Sampler, violations: list[str]) -> Soak:
        minutes, cores = options.seconds / 60, os.cpu_count() or 1
        problems = [] if sampler.problem is None else [sampler.problem]
        return Soak(
            options.seed, minutes, cores, sampler.samples, sampler.bloat, violations + problems, interval_seconds
        )

    def sample(stage: Stage, history: History) -> Sampler:
        def keep(sampler: Sampler) -> None:
            soak(sampler, [NOT_JUDGED]).write(file)

        samplers.append(Sampler(stage, history, options.seconds, interval_seconds, keep))
        return samplers[0]

    report, _ = run_on(options, Stage(options.directory, options.agents, truncates=True), sample)
    found = soak(samplers[0], [f"{one.check}: {one.sentence}" for one in report.violations])
    found.write(file)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak and write its report."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--seed", type=int, default=7, help="decides the load")
    parser.add_argument("--clients", type=int, default=6, help="clients that rent, beside all others of the campaign")
    parser.add_argument("--every-seconds", type=float, default=30.0, help="between two samples")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "soak", help="where samples and report go")
    parser.add_argument("--keep", type=Path, help="run in this directory and leave it, logs included")
    parser.add_argument("--report", type=Path, metavar="FILE", help="run nothing; write the report of these samples")
    asked = parser.parse_args(arguments)
    if not asked.minutes >= LEAST_MINUTES:
        parser.error(f"a soak takes at least {LEAST_MINUTES:g} minute")
    if not 0 < asked.every_seconds <= asked.minutes * 10:
        parser.error("a soak needs at least 6 samples")
    asked.directory.mkdir(parents=True, exist_ok=True)
    if asked.report is not None:
        soak = read_soak(asked.report)
    else:
        with tempfile.TemporaryDirectory(prefix="berth-soak-", ignore_cleanup_errors=True) as temporary:
            directory = (asked.keep or Path(temporary)) / "var"
            options = CampaignOptions(directory, asked.minutes * 60, asked.seed, clients=asked.clients)
            soak = run_soak(options, asked.every_seconds, asked.directory / "samples.json")
    write_report(soak, asked.directory)
    problems = judge(soak)
    sys.stdout.write((asked.directory / "soak.md").read_text())
    for problem in problems:
        sys.stdout.write(f"GREW OR BROKE: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
