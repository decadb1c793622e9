"""Every check of the host, for `python -m node_agent --check`; needs no enrolment and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from node_agent.checks.accelerator import check_emulation, check_kvm
from node_agent.checks.finding import Finding
from node_agent.checks.storage import check_direct_io


def check_host(environment: Mapping[str, str]) -> list[Finding]:
    """Run every check. The state directory is checked only if `BERTH_AGENT_STATE_DIR` names one."""
    directory = environment.get("BERTH_AGENT_STATE_DIR")
    storage = [check_direct_io(Path(directory))] if directory else []
    return [*storage, check_emulation(), check_kvm()]


def report_host() -> int:
    """Print one line per finding. Return 0 if all passed, otherwise 1."""
    findings = check_host(os.environ)
    for finding in findings:
        print(finding.line())  # noqa: T201 - the output of the command
    return 0 if all(finding.passed for finding in findings) else 1
