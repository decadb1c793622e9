"""The deadlines of sites and their machines, short enough for a campaign, whose BMCs and disks are quick.

Installed before the modules that import them by name (BERTH_HURRIED_SITES=1); each is still longer than what it contains, as in
the product.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping

from tests.testbuild import planting

QUEUE_SECONDS = 2.0
"""How long a BMC may hold a command."""
REQUEST_SECONDS, TASK_SECONDS, REPORT_SECONDS, RUN_SECONDS = 40.0, 45.0, 10.0, 60
CONTROL_PLANE: Mapping[str, Mapping[str, float]] = {
    "orchestrator.nodes.deploy_systems.run_rules": {
        "RUN_SECONDS_MAX": RUN_SECONDS, "SITE_STEP_SECONDS_MAX": REQUEST_SECONDS + TASK_SECONDS + REPORT_SECONDS + 5,
        "_WIPE_SECONDS": 60, "_DISK_SECONDS": 0, "_WRITTEN_GIB_SECONDS": 0, "_READ_GIB_SECONDS": 0, "_DEPLOY_SECONDS": 60,
        "_IMAGE_GIB_SECONDS": 0,
    },
    "orchestrator.sites.rules": {
        "REQUEST_SECONDS_MAX": REQUEST_SECONDS, "TASK_SECONDS_MAX": TASK_SECONDS, "REACH_SECONDS_MAX": TASK_SECONDS,
        "REPORT_GRACE_SECONDS": REPORT_SECONDS,
    },
    "orchestrator.tasks.store.site_tasks": {
        "PROVISION_SECONDS_MAX": 400.0, "RELEASE_SECONDS_MAX": 400.0, "SWITCH_SECONDS_MAX": 120.0,
    },
}  # fmt: skip
IMPORTS_THEM = (
    "orchestrator.sites.tenancies",
    "orchestrator.sites.commands.runs",
    "orchestrator.allocations.commands.cleanup",
)
AGENT: Mapping[str, float] = {"ATTEMPT_SECONDS": 3.0, "PAUSE_SECONDS": 0.5, "MARGIN_SECONDS": 3.0}
"""Of `node_agent.site.reaching`."""


def hurry_control_plane(ssh_port: int) -> None:
    """Shorten the deadlines of runs, of tasks of sites and of allocations on machines, whose SSH servers have this port."""
    for name, constants in CONTROL_PLANE.items():
        module = importlib.import_module(name)
        for constant, seconds in constants.items():
            planting.replace(module, constant, seconds)
    late = [name for name in IMPORTS_THEM if name in sys.modules]
    assert late == [], f"imported with the long deadlines: {late}"
    planting.replace(importlib.import_module("orchestrator.sites.tenancies"), "SSH_PORT", ssh_port)


def hurry_agent() -> None:
    """Shorten what an agent of a site waits for at a BMC."""
    from node_agent.site import bmcs, power, reaching

    deadlines = dataclasses.replace(
        bmcs.DEADLINES, connect_seconds=2, read_seconds=2, command_seconds=3, insert_seconds=4, settle_seconds=12,
        task_seconds=20, poll_seconds=0.3, queue_seconds=QUEUE_SECONDS, restart_seconds=10,
    )  # fmt: skip
    planting.replace(bmcs, "DEADLINES", deadlines)
    planting.replace(power.switch_off, "__defaults__", (5.0,))
    for constant, seconds in AGENT.items():
        planting.replace(reaching, constant, seconds)
