"""Objects that exist when a process begins to serve are not collected again; later ones still are."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from orchestrator.heap import settle_heap


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_lives_when_serving_begins_is_set_aside() -> None:
    early = Ring()
    settle_heap()
    assert not any(one is early for one in gc.get_objects())
    late = weakref.ref(Ring())
    gc.collect()
    assert late() is None


FREES = """
import psutil
from orchestrator.heap import return_freed_memory
assert return_freed_memory()
used = psutil.Process().memory_info
before = used().rss
large, small = [], []
for _ in range(1_000):
    large.append(bytearray(100_000))
    small.append(bytes(2_000))
grown = used().rss - before
large.clear()
print(grown, used().rss - before)
"""


def test_freed_memory_is_returned_between_blocks_that_stay() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, check=True)
    grown, left = map(int, done.stdout.split())
    assert grown > 90_000_000
    assert left < 20_000_000
