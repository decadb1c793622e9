"""Identifies the agent: its version and a digest over its modules, so that a statement can be traced to a build."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import node_agent
from node_agent.wiping.statement import AgentBuild


def agent_version() -> str:
    """The version of the installed package; `unknown` if it is not installed."""
    try:
        return version("berth")
    except PackageNotFoundError:
        return "unknown"


@cache
def agent_build() -> AgentBuild:
    """The version, and the SHA-256 over names and contents of the package's modules in the order of their names.

    Computed once per process; `sha256sum` style input: the digest of each file in hex, two spaces, its path, a newline.
    """
    package = Path(node_agent.__file__).parent
    lines = [
        f"{hashlib.sha256(module.read_bytes()).hexdigest()}  {module.relative_to(package).as_posix()}\n"
        for module in sorted(package.rglob("*.py"), key=lambda module: module.relative_to(package).as_posix())
    ]
    return AgentBuild(version=agent_version(), sha256=hashlib.sha256("".join(lines).encode()).hexdigest())
