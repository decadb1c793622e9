"""A machine with three kinds of disk and a TPM for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.lives.equipped import Equipped, equipped


@pytest.fixture
def iron(tmp_path: Path, medium: Path) -> Iterator[Equipped]:
    """The machine, off."""
    with equipped(tmp_path / "machine") as machine:
        yield machine
