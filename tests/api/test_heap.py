"""Objects that exist when a process begins to serve are not collected again; later ones still are."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from orchestrator import heap
from orchestrator.heap import FULL_SECONDS_MAX, GROWN_BYTES, GROWN_SHARE, FullCollections, collect_when_due, settle_heap
from tests.support.waiting import async_wait_for, let_others_run

LARGE = 100 * GROWN_BYTES


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


def test_what_exists_when_serving_begins_is_set_aside() -> None:
    early = Ring()
    settle_heap()
    assert not any(one is early for one in gc.get_objects())
    late = weakref.ref(Ring())
    gc.collect()
    assert late() is None


@pytest.mark.parametrize(
    ("used", "grown", "seconds", "due"),
    [
        (0, GROWN_BYTES - 1, FULL_SECONDS_MAX - 1, False),
        (0, GROWN_BYTES, 0.0, True),
        (LARGE, GROWN_BYTES, 0.0, False),
        (LARGE, int(GROWN_SHARE * LARGE), 0.0, True),
        (LARGE, -LARGE, FULL_SECONDS_MAX, True),
    ],
)
def test_a_full_collection_is_due_when_memory_has_grown_or_time_has_passed(
    used: int, grown: int, seconds: float, due: bool
) -> None:
    collections = FullCollections(1_000.0, used)
    assert collections.is_due(1_000.0 + seconds, used + grown) is due
    collections.note(1_000.0 + seconds, used + grown)
    assert not collections.is_due(1_000.0 + seconds, used + grown)


def test_many_objects_that_live_for_a_while_cause_no_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [LARGE]
    monkeypatch.setattr(heap, "resident_bytes", lambda: used[0])
    monkeypatch.setattr(heap, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(heap, "OBJECTS_UNTIL_COLLECTION", 10)
    monkeypatch.setattr(heap, "YOUNG_PER_MIDDLE", 1)
    monkeypatch.setattr(heap, "MIDDLE_PER_FULL", 1)

    async def scene() -> None:
        settle_heap()
        collecting = asyncio.create_task(collect_when_due())
        await let_others_run(3)
        ring = Ring()
        gc.collect(1)  # it is old now
        old = weakref.ref(ring)
        del ring
        lasting = [[number] for number in range(100_000)]
        await let_others_run(10)
        assert old() is not None
        used[0] += int(GROWN_SHARE * LARGE)
        await async_wait_for(lambda: old() is None, "a full collection")
        collecting.cancel()
        assert len(lasting) == 100_000

    asyncio.run(scene())


def test_where_memory_cannot_be_read_python_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "resident_bytes", lambda: None)
    before = gc.get_threshold()
    asyncio.run(collect_when_due())
    assert gc.get_threshold() == before


def test_the_memory_of_the_process_is_read() -> None:
    before = heap.resident_bytes()
    block = bytearray(b"x" * GROWN_BYTES)
    after = heap.resident_bytes()
    assert before is not None
    assert after is not None
    assert after - before > len(block) / 2


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
