"""A rented machine for each scene."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sites.renting.tenancy import Scene, player, renting


@pytest.fixture
def play(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene with a machine that is behind a BMC, and an SSH server in its place."""
    return player(partial(renting, database_url, tmp_path), monkeypatch)
