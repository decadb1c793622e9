"""Objects that exist when a process begins to serve are not collected again; later ones still are."""

from __future__ import annotations

import gc
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
