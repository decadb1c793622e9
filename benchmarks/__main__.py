"""`python -m benchmarks [--only NAME ...] [--full] [--quick]`: one line per figure; exit status 1: a limit was missed."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys

MODULES = {
    "create": "benchmarks.create",
    "row_security": "benchmarks.guards.row_security",
    "guards": "benchmarks.guards.together",
    "gate": "benchmarks.gate",
    "fairness": "benchmarks.fairness",
    "refusals": "benchmarks.refusals",
    "hostile": "benchmarks.attacks.hostile",
    "holds": "benchmarks.holds",
    "windows": "benchmarks.reservations.windows",
    "contended": "benchmarks.reservations.contended",
    "kv": "benchmarks.log.kv",
    "feed": "benchmarks.log.feed",
    "metering": "benchmarks.log.metering",
    "scale": "benchmarks.scale",
    "active": "benchmarks.active",
    "relay": "benchmarks.log.relay_figures",
    "dispatch": "benchmarks.node_api.dispatch",
    "node_flood": "benchmarks.attacks.node_flood",
    "memory": "benchmarks.memory",
    "verify": "benchmarks.verify",
    "availability": "benchmarks.availability",
}
LONG_MODULES = {
    "past": "benchmarks.with_past",
    "large": "benchmarks.large.whole",
    "history": "benchmarks.history",
    "dispatch_many": "benchmarks.node_api.dispatch_many",
    "fleet": "benchmarks.node_api.fleet",
    "footprint": "benchmarks.footprint",
    "failover": "benchmarks.survival.failover",
    "restore": "benchmarks.survival.restore",
    "temporal_lost": "benchmarks.survival.temporal_lost",
    "standby_reads": "benchmarks.survival.standby_reads",
}
"""What takes minutes to seed: `make bench-full`."""
KNOWN = MODULES | LONG_MODULES


def main() -> int:
    """Run the named benchmarks, or all, one after another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KNOWN, metavar="NAME", help=f"which: {', '.join(KNOWN)}")
    parser.add_argument("--full", action="store_true", help=f"also the long ones: {', '.join(LONG_MODULES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and requests: a look, not a measurement")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends with us
    load = os.getloadavg()[0]
    print(f"# {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load before {load:.2f}")
    kept = True
    for name in options.only or (KNOWN if options.full else MODULES):
        for figure in importlib.import_module(KNOWN[name]).run(options.quick):
            kept = kept and figure.ok
            print(figure.line(), flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
