"""Fixtures of tests that need a kernel with more than a test machine may have. `run-in-kernel` loads no other conftest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.thin_pools.pools import ThinPool, thin_pool, why_unavailable


@pytest.fixture
def thin(tmp_path: Path) -> Iterator[ThinPool]:
    """A pool on a loop device; skipped, with the reason, where this machine cannot have one."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(f"no thin pool can be made: {reason}")
    with thin_pool(tmp_path) as made:
        yield made
