"""A primary and its standby for each module whose tests end neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.database.replicas.pairs import Pair, running_pair


@pytest.fixture(scope="module")
def pair(server_directory: Path) -> Iterator[Pair]:
    """Servers that no test of this module ends; each leaves the replay running."""
    with running_pair(server_directory) as running:
        yield running
