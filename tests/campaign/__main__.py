"""`python -m tests.campaign --minutes 10 --seed 7 [--plant NAME] [--output report.json]`. Exit code 1 on violations."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.campaign.casting import CampaignOptions
from tests.campaign.running import run_campaign
from tests.testbuild.planted_bugs import PLANTED_BUGS, PLANTED_SQL


def main() -> int:
    """Run one campaign and print its report."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long load and faults go on")
    parser.add_argument("--seed", type=int, default=7, help="decides faults and load")
    parser.add_argument("--plant", choices=sorted({*PLANTED_BUGS, *PLANTED_SQL}), help="plant this bug first")
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--fault-every-seconds", type=float, default=2.5)
    parser.add_argument("--settle-seconds", type=float, default=150.0, help="how long everything may take to end")
    parser.add_argument("--machines", type=int, default=3, help="bare-metal machines of the rack; 0: no rack")
    parser.add_argument("--ha", action="store_true", help="three PostgreSQL and three NATS servers, and their faults")
    parser.add_argument("--output", type=Path, help="write the report as JSON, and the history beside it")
    parser.add_argument("--keep", type=Path, help="run in this directory and leave it, logs included")
    asked = parser.parse_args()
    if asked.minutes * 60 < 10:
        parser.error("a campaign takes at least 10 seconds")
    with tempfile.TemporaryDirectory(prefix="berth-campaign-", ignore_cleanup_errors=True) as temporary:
        directory = (asked.keep or Path(temporary)) / "var"
        options = CampaignOptions(
            directory,
            asked.minutes * 60,
            asked.seed,
            asked.plant,
            asked.agents,
            asked.clients,
            asked.fault_every_seconds,
            asked.settle_seconds,
            ha=asked.ha,
            machines=asked.machines,
        )
        report, history = run_campaign(options)
    sys.stdout.write("\n".join(report.lines()) + "\n")
    if asked.output is not None:
        report.write(asked.output)
        history.write(asked.output.with_suffix(".history.jsonl"))
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
