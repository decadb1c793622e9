"""The machine of each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy_system.effects.machines import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
