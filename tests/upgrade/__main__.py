"""`python -m tests.upgrade --minutes 2 --seed 7`: a rolling upgrade from the last release. Exit code 1 on violations."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.campaign.history import History
from tests.upgrade.rolling import run_upgrade


def step_lines(history: History) -> list[str]:
    """How long the steps took, from the end of the old process to the new one being ready."""
    seconds = {(i.kind, i.target): (i.ended or i.began) - i.began for i in history.injuries}
    exchanges = {target: taken for (kind, target), taken in seconds.items() if kind == "exchange"}
    slowest = max(exchanges, key=lambda target: exchanges[target], default="none")
    migrated = seconds.get(("migrate", "schema"), 0.0)
    return [
        f"  schema upgraded in {migrated:.1f} s",
        f"  {len(exchanges)} processes exchanged three times; the slowest took {exchanges.get(slowest, 0.0):.1f} s ({slowest})",
    ]


def main() -> int:
    """Run one upgrade and print its report."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the load goes on")
    parser.add_argument("--seed", type=int, default=7, help="decides the order of processes and the load")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="run in this directory and leave it, logs included")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-upgrade-", ignore_cleanup_errors=True) as temporary:
        directory = asked.keep or Path(temporary)
        report, history = run_upgrade(directory, asked.minutes * 60, asked.seed, asked.agents, asked.clients)
        if asked.keep is not None:
            history.write(directory / "history.jsonl")
    sys.stdout.write("\n".join([*report.lines(), *step_lines(history)]) + "\n")
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
