"""The syntax trees of all modules are kept while these tests run."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.architecture import source_modules


@pytest.fixture(scope="package", autouse=True)
def trees_kept_meanwhile() -> Iterator[None]:
    """Without the garbage collector, which would walk a million nodes again and again."""
    gc.disable()
    yield
    source_modules.nodes.cache_clear()
    source_modules.parsed.cache_clear()
    gc.enable()
