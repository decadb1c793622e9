"""`python -m benchmarks [name ...] [--quick]`: one line per figure; exit status 1 if a limit of DESIGN §10 is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys

MODULES = {
    "create": "benchmarks.create",
    "gate": "benchmarks.gate",
    "holds": "benchmarks.holds",
    "windows": "benchmarks.reservations.windows",
    "contended": "benchmarks.reservations.contended",
    "kv": "benchmarks.kv",
    "feed": "benchmarks.feed",
    "metering": "benchmarks.metering",
    "scale": "benchmarks.scale",
    "active": "benchmarks.active",
    "relay": "benchmarks.relay_figures",
    "dispatch": "benchmarks.dispatch",
    "memory": "benchmarks.memory",
    "verify": "benchmarks.verify",
    "availability": "benchmarks.availability",
}


def main() -> int:
    """Run the named benchmarks, or all, one after another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(MODULES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and requests: a look, not a measurement")
    options = parser.parse_args()
    unknown = set(options.names) - set(MODULES)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends with us
    load = os.getloadavg()[0]
    print(f"# {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load before {load:.2f}")
    kept = True
    for name in options.names or MODULES:
        for figure in importlib.import_module(MODULES[name]).run(options.quick):
            kept = kept and figure.ok
            print(figure.line(), flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
