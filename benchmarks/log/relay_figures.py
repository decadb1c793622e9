"""Runs the relay's own benchmark (`benchmarks/log/relay.py`) and reads its figures."""

from __future__ import annotations

import re
import subprocess
import sys

from benchmarks.figures import Figure
from benchmarks.log.relay import LATENCY_MS_MAX, RATIO_MIN

RUN_SECONDS_MAX = 600.0


def run(quick: bool) -> list[Figure]:
    """Relay events/s over raw durable JetStream, and the time from commit to delivery. It has one size, quick or not."""
    del quick
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log.relay"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    rate = re.search(r"relay_events_per_s (\S+) raw (\S+) ratio (\S+)", done.stdout)
    latency = re.search(r"commit_to_delivery_p99_ms (\S+)", done.stdout)
    if rate is None or latency is None:
        raise RuntimeError(f"the relay's benchmark did not end: {done.stdout[-300:]}")
    over = f"{float(rate[1]):,.0f} events/s over {float(rate[2]):,.0f} raw"
    return [
        Figure(
            "relay_over_raw_jetstream", float(rate[1]) / float(rate[2]), "ratio", RATIO_MIN, at_least=True, over=over
        ),
        Figure("commit_to_delivery_p99", float(latency[1]), "ms", LATENCY_MS_MAX),
    ]
