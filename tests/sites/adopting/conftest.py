"""A machine that runs already, for each scene."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sites.adopting.machines import Scene, adopting
from tests.sites.renting.tenancy import player


@pytest.fixture
def play(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene with a machine that is on behind a BMC, and an SSH server in its place."""
    return player(partial(adopting, database_url, tmp_path), monkeypatch)
