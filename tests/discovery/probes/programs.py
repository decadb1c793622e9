"""Programs that tests put in place of smartctl and of plugins, and the probe of a recorded machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from node_agent.probes.probe import Prober
from node_agent.wire.burn_in import BurnInReport
from node_agent.wire.health import HealthReport
from tests.discovery.trees import GPU_ADDRESSES, RecordedTree

EDAC = "sys/devices/system/edac/mc"


def write_program(path: Path, text: str, mode: int = 0o755) -> Path:
    """Write an executable of Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(mode)
    return path


def gaps_of(report: HealthReport | BurnInReport) -> dict[str, str]:
    """What a report says that it lacks, and why."""
    return {gap.subject: gap.reason for gap in report.gaps}


def left_behind(name: str) -> list[str]:
    """Command lines with this name of processes that this one started, or its children, and that still run."""
    lines = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            lines.append(" ".join(child.cmdline()))
    return [line for line in lines if name in line]


def smartctl(directory: Path, answers: dict[str, Any], code: int = 0) -> dict[str, str]:
    """A `smartctl` that gives these answers by the name of the disk; the environment in which it is found."""
    text = f"import json, sys\nanswers = json.loads({json.dumps(answers)!r})\n"
    text += f"print(json.dumps(answers.get(sys.argv[-1], {{}})))\nsys.exit({code})\n"
    write_program(directory / "smartctl", text)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


def passed(**log: int) -> dict[str, Any]:
    """What smartctl says of an NVMe disk."""
    return {
        "smart_status": {"passed": True}, "temperature": {"current": 41},
        "nvme_smart_health_information_log": {"critical_warning": 0, "percentage_used": 3, "media_errors": 0, **log},
    }  # fmt: skip


def add_health(tree: RecordedTree) -> None:
    """Give a recorded machine EDAC, counters of its ports, and a kernel's log without errors."""
    for controller in range(2):
        tree.write(f"{EDAC}/mc{controller}/ce_count", f"{controller}\n")
        tree.write(f"{EDAC}/mc{controller}/ue_count", "0\n")
    for index in range(2):
        port = f"sys/class/net/ens{index}np0"
        tree.write(f"{port}/flags", "0x1003\n")
        tree.write(f"{port}/carrier", "1\n")
        tree.write(f"{port}/carrier_down_count", f"{index}\n")
        tree.write(f"{port}/statistics/rx_errors", "7\n")
        tree.write(f"{port}/statistics/tx_errors", "0\n")
        tree.write(f"sys/block/nvme{index}n1/device/state", "live\n")
        tree.write(f"sys/block/nvme{index}n1/device/hwmon{index}/temp1_input", "35850\n")
    tree.write("dev/kmsg", "6,1,10,-;Linux version 6.8.0\n")


def log_xid(index: int, code: int, priority: int = 4) -> str:
    """One record of the kernel's log about a GPU."""
    bus = GPU_ADDRESSES[index].rpartition(".")[0]
    return f"{priority},99,1234,-;NVRM: Xid (PCI:{bus}): {code}, pid=77, name=python, and more\n"


def probe(tree: RecordedTree, environment: Mapping[str, str], **settings: Any) -> HealthReport:
    """One probe of a recorded machine."""
    return asyncio.run(Prober("libvirt", root=tree.root, environment=environment, **settings).probe())
