"""Runs programs of the deploy system, each with a time and a bounded output."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from node_agent.deploy_system.effects.contract import Host, ToolRun

OUTPUT_MAX: Final = 64 * 1024


def run_tool(command: Sequence[str], timeout_seconds: float) -> ToolRun:
    """Run a program without input, and end it with SIGKILL when its time is over."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout_seconds, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return ToolRun(127, f"{command[0]} is not on the medium")
    except PermissionError as error:
        return ToolRun(126, f"{command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return ToolRun(124, f"{command[0]} ran longer than {timeout_seconds:.0f} seconds")
    return ToolRun(done.returncode, done.stdout[-OUTPUT_MAX:].decode(errors="replace").strip())


def real_host() -> Host:
    """The machine that this process runs on."""
    return Host(run=run_tool)
