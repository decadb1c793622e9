"""Programs of requirements-redfish.lock, in an environment apart: `make build/redfish/ready`."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "build" / "redfish"


def tool(name: str) -> str:
    """The path of a program; the test is skipped where it is not installed."""
    path = TOOLS / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: make build/redfish/ready")
    return str(path)
