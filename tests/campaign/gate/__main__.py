"""`python -m tests.campaign.gate --runs 20 --minutes 30 --calm 5`: exit code 0 if every run passed, else 1.

`--table` runs nothing and prints the table of the results of the present code.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.faults.recovering import Recovery, by_class
from tests.campaign.gate.gate import Gate, ProductChanged, line_of, plan
from tests.campaign.gate.results import ROOT, Result, Results, product_hash

LEAST_MINUTES = 0.5


def number_of_runs(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def minutes(text: str) -> float:
    """A finite number from half a minute on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= LEAST_MINUTES):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes from {LEAST_MINUTES} on")
    return value


def table(results: Sequence[Result]) -> list[str]:
    """The table of the documentation."""
    lines = [
        "| seed | minutes | servers | faults | writes | ambiguous, resolved | violations | product |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        servers = "three each" if result.run.ha else "one each"
        faults = "none" if result.run.calm else f"{result.faults:,}"
        lines.append(
            f"| {result.run.seed} | {result.run.minutes:g} | {servers} | {faults} | {result.writes:,} | {result.ambiguous:,}, "
            f"{result.resolved:,} | {result.violations} | {result.product[:12]} |"
        )
    return lines


def recovery_lines(results: Sequence[Result]) -> list[str]:
    """The recoveries of all runs, a line for each class of fault."""
    found = [{name: r[name] for name in Recovery.__dataclass_fields__} for result in results for r in result.recoveries]
    return by_class(Recovery(**recovery) for recovery in found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate, or print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.gate", description=__doc__)
    parser.add_argument("--runs", type=number_of_runs, default=20, help="campaigns with faults")
    parser.add_argument("--calm", type=number_of_runs, default=5, help="campaigns without faults")
    parser.add_argument("--minutes", type=minutes, default=30.0, help="how long each is")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "gate", help="results and logs")
    parser.add_argument("--again", action="store_true", help="repeat the runs that failed")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table of the present code")
    asked = parser.parse_args(arguments)
    runs = plan(asked.runs, asked.minutes, asked.calm, asked.first_seed)
    if not runs:
        parser.error("--runs and --calm are 0: nothing would be tested")
    if asked.table:
        found = Results(asked.directory / "results").all(product_hash(), runs)
        sys.stdout.write("\n".join([*table(found), "", *recovery_lines(found)]) + "\n")
        return 0
    try:
        results = Gate(asked.directory, say).go_on(runs, again=asked.again)
    except ProductChanged as changed:
        sys.stderr.write(f"gate: {changed}\n")
        return 1
    failed = [result for result in results if not result.passed]
    for line in recovery_lines(results):
        say(f"  {line}")
    say(f"gate: {len(results) - len(failed)} of {len(results)} passed")
    for result in failed:
        say(f"  {result.run}: {line_of(result)}")
    return 1 if failed else 0


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
