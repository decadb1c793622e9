"""Tests one part and prints the result: `python -m node_agent.burn_in.trial AGENT PART BOUND DIRECTORY SHARED`.

Each part is a process: a core or a memory module that is broken may end it, and its memory must return to the node.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from node_agent.burn_in.cpu import compute, run_cpu_test
from node_agent.burn_in.disk import Scratch, run_disk_test
from node_agent.burn_in.memory import Buffer, anonymous, become_first_victim, run_memory_test
from node_agent.burn_in.tether import tether
from node_agent.burn_in.trial_report import TrialReport
from node_agent.discovery.reading import Gaps
from node_agent.wire.burn_in import BurnInPart

SHARED = "shared"
PRIORITY_LOWEST = 19


@dataclass(frozen=True)
class Hardware:
    """What is under test. Tests of Berth put faulty hardware in its place."""

    allocate: Callable[[int], Buffer] = anonymous
    scratch: type[Scratch] = Scratch
    computation: Callable[[], str] = compute


def run_trial(part: str, bound: float, directory: Path, hardware: Hardware, *, shared: bool) -> TrialReport:
    """Test one of `memory`, `disk` and `cpu`. `bound` are bytes, of `cpu` seconds."""
    gaps, began = Gaps(), time.monotonic()
    found = _tested(part, bound, directory, hardware, gaps, shared=shared)
    seconds = round(time.monotonic() - began, 3)
    return TrialReport(part=found.model_copy(update={"seconds": seconds}), gaps=gaps.all())


def _tested(part: str, bound: float, directory: Path, hardware: Hardware, gaps: Gaps, *, shared: bool) -> BurnInPart:
    if part == "memory":
        become_first_victim()
        return run_memory_test(int(bound), shared=shared, allocate=hardware.allocate)
    if part == "disk":
        return run_disk_test(directory, int(bound), gaps, shared=shared, scratch=hardware.scratch)
    return run_cpu_test(bound, shared=shared, computation=hardware.computation)


def main(arguments: Sequence[str], hardware: Hardware = Hardware()) -> None:
    """The process."""
    agent, part, bound, directory, shared = arguments
    tether(int(agent))
    os.nice(PRIORITY_LOWEST)  # guests of other slots, and the agent, come first
    report = run_trial(part, float(bound), Path(directory), hardware, shared=shared == SHARED)
    sys.stdout.write(report.model_dump_json())


if __name__ == "__main__":
    main(sys.argv[1:])
