"""`python -m tests.testbuild <module> [arguments]`: as `python -m <module> [arguments]`, with what the environment asks for.

BERTH_CRASH_AT=<label>:<n>   the process kills itself (SIGKILL) when the label is reached for the n-th time
BERTH_CRASH_AT_FILE=<path>   the same, by what the file says when a point is reached, so that a running process can be armed
BERTH_BMC_QUEUE_SECONDS=<s>  the agent of a site waits so long for commands that a BMC may hold, instead of 30 s
BERTH_HURRIED_SITES=<port>   sites have short deadlines, machines this SSH port, and requests to BMCs name their attempt
BERTH_PLANTED_BUG=<name>     one bug of `planted_bugs.py` is planted before the module runs
Exit status 2 with one sentence if the module, the label, the number or the name is unknown.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import runpy
import sys
from pathlib import Path

from berth.process import crash_points
from tests.testbuild import planting
from tests.testbuild.attributing import attribute_requests
from tests.testbuild.hurrying import hurry_agent, hurry_control_plane
from tests.testbuild.killing import kill_at, written_in
from tests.testbuild.planted_bugs import PLANTED_BUGS

CRASH_POINTS = {
    "orchestrator": ("orchestrator.crash_points",),
    "worker": ("orchestrator.crash_points",),
    "outbox_relay": ("outbox_relay.crash_points",),
    "node_agent": ("node_agent.crash_points", "node_agent.site.crash_points"),
    "berth.cli": ("berth.cli.deployment.archive.crash_points", "berth.cli.deployment.backup.crash_points"),
}


class Unknown(Exception):
    """The environment or the arguments ask for something that there is not; the message says what there is."""


def arm(module: str, wanted: str) -> None:
    """Install the kill at `wanted`, `<label>:<n>`. Raises `Unknown`."""
    label, _, number = wanted.rpartition(":")
    known = [str(point) for name in CRASH_POINTS[module] for point in importlib.import_module(name).CrashPoint]
    if label not in known:
        raise Unknown(f"{module} has no crash point {label or wanted!r}; it has {', '.join(known)}")
    if not number.isdecimal() or int(number) < 1:
        raise Unknown(f"BERTH_CRASH_AT={wanted}: the number after the label counts from 1")
    crash_points.install(kill_at(lambda: wanted))


def arm_by_file(module: str, path: str) -> None:
    """Install the kill at whatever the file will say."""
    crash_points.install(kill_at(written_in(Path(path))))


def hurry(seconds: float) -> None:
    """Believe a BMC's power state after so long: a stub or emulator holds no commands."""
    from node_agent.site import bmcs

    planting.replace(bmcs, "DEADLINES", dataclasses.replace(bmcs.DEADLINES, queue_seconds=seconds))


def hurry_sites(module: str, ssh_port: int) -> None:
    """The short deadlines of a campaign's machines, and requests to BMCs that name their attempt."""
    if module == "node_agent":
        hurry_agent()
        attribute_requests()
    else:
        hurry_control_plane(ssh_port)


def plant(name: str) -> None:
    """Plant one bug. Raises `Unknown`."""
    if name not in PLANTED_BUGS:
        raise Unknown(f"there is no planted bug {name!r}; there are {', '.join(sorted(PLANTED_BUGS)) or 'none'}")
    PLANTED_BUGS[name]()


def main() -> None:
    """Prepare, then become the module."""
    module, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    try:
        if module not in CRASH_POINTS:
            raise Unknown(f"python -m tests.testbuild <module>: {module!r} is none of {', '.join(CRASH_POINTS)}")
        if crash_at := os.environ.get("BERTH_CRASH_AT"):
            arm(module, crash_at)
        elif crash_file := os.environ.get("BERTH_CRASH_AT_FILE"):
            arm_by_file(module, crash_file)
        if seconds := os.environ.get("BERTH_BMC_QUEUE_SECONDS"):
            hurry(float(seconds))
        if port := os.environ.get("BERTH_HURRIED_SITES"):
            hurry_sites(module, int(port))
        if bug := os.environ.get("BERTH_PLANTED_BUG"):
            plant(bug)
    except Unknown as unknown:
        sys.stderr.write(f"testbuild: {unknown}\n")
        sys.exit(2)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
