"""Every check of the host, for `python -m node_agent --check`; needs no enrolment and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from node_agent.checks.accelerator import check_emulation, check_kvm
from node_agent.checks.finding import Finding
from node_agent.checks.hypervisor import check_libvirt, check_traversal
from node_agent.checks.storage import check_direct_io


def check_host(environment: Mapping[str, str]) -> list[Finding]:
    """Run every check. Directories are checked if the environment names them, libvirt if it names that driver."""
    state_dir, guest_dir = (environment.get(f"BERTH_{name}") for name in ("AGENT_STATE_DIR", "GUEST_DIR"))
    storage = [check_direct_io(Path(state_dir))] if state_dir else []
    if guest_dir:
        storage += [
            check_direct_io(Path(guest_dir), "guest directory", "BERTH_GUEST_DIR"),
            check_traversal(Path(guest_dir)),
        ]
    is_libvirt = environment.get("BERTH_AGENT_DRIVER") == "libvirt"
    libvirt = [check_libvirt(environment.get("BERTH_LIBVIRT_URI", "qemu:///system"))] if is_libvirt else []
    return [*storage, check_emulation(), check_kvm(), *libvirt]


def report_host() -> int:
    """Print one line per finding. Return 0 if all passed, otherwise 1."""
    findings = check_host(os.environ)
    for finding in findings:
        print(finding.line())  # noqa: T201 - the output of the command
    return 0 if all(finding.passed for finding in findings) else 1
