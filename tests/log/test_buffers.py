"""What waits for the streams of a tenant and of a process is bounded, and events are encoded once for all filters."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast
from uuid import UUID

import pytest

from orchestrator.database.transactions import Database
from orchestrator.log.feed import feed as feeds
from orchestrator.log.feed import frames
from orchestrator.log.feed.buffers import BufferBudget
from orchestrator.log.feed.delivery import SubscriberDelivery
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.frames import Audience, EncodedEvents
from orchestrator.log.feed.limits import FeedLimits
from orchestrator.log.feed.subscribers import JOINED_BYTES_MAX, Subscriber
from orchestrator.log.store.feed import FeedEvent, Filter
from orchestrator.log.store.head import Head
from tests.support.waiting import let_others_run

ONE, OTHER = UUID(int=1), UUID(int=2)
BUFFER = 10_000


def subscribers(count: int, tenant: UUID, budget: BufferBudget) -> list[Subscriber]:
    """So many of a tenant."""
    made = [Subscriber(Audience(tenant), 0, "leader", BUFFER, lambda: None) for _ in range(count)]
    for each in made:
        each.count_in(budget)
    return made


def ended(found: list[Subscriber]) -> list[bool]:
    return [each.is_slow for each in found]


def test_a_tenant_beyond_its_bound_loses_its_slowest_streams_and_no_other() -> None:
    budget = BufferBudget(1_000, 100_000)
    of_one, of_other = subscribers(10, ONE, budget), subscribers(2, OTHER, budget)
    for number, each in enumerate(of_other):
        each.push(bytes([100 + number]) * 400)
    for number, each in enumerate(of_one):
        each.push(bytes([number]) * 400)
    assert ended(of_one) == [True] * 8 + [False] * 2, "those that have waited longest"
    assert not any(ended(of_other))
    assert budget.size == 4 * 400


def test_the_tenant_with_most_makes_room_in_the_process() -> None:
    budget = BufferBudget(10_000, 1_000)
    of_one, of_other = subscribers(2, ONE, budget), subscribers(1, OTHER, budget)
    for number, each in enumerate(of_one):
        each.push(bytes([number]) * 450)
    of_other[0].push(b"o" * 300)
    assert ended(of_one) == [True, False]
    assert not of_other[0].is_slow


def test_shared_bytes_count_once_and_until_the_last_has_sent_them() -> None:
    async def scene() -> None:
        budget = BufferBudget(1_000, 1_000)
        sharing = subscribers(50, ONE, budget)
        chunk = b"x" * 900
        for each in sharing:
            each.push(chunk)
        assert budget.size == 900
        for each in sharing[1:]:
            assert await each.next() is chunk
            each.mark_sent()
        assert budget.size == 900
        assert not any(ended(sharing))
        await sharing[0].next()
        assert budget.size == 900, "it is being sent"
        sharing[0].release()
        assert budget.size == 0
        sharing[0].push(chunk)
        assert budget.size == 0, "nothing waits for one that is gone"

    asyncio.run(scene())


def test_chunks_are_sent_together_up_to_a_bound() -> None:
    async def scene() -> None:
        (one,) = subscribers(1, ONE, BufferBudget(10**9, 10**9))
        one._buffer_bytes_max = 10**9
        sizes = [1_000] * 100 + [JOINED_BYTES_MAX + 1, 5]
        for number, size in enumerate(sizes):
            one.push(bytes([number]) * size)
        received = []
        while one.has_waiting:
            received.append(await one.next() or b"")
            one.mark_sent()
        assert b"".join(received) == b"".join(bytes([number]) * size for number, size in enumerate(sizes))
        assert [len(each) for each in received] == [65_000, 35_000, JOINED_BYTES_MAX + 1, 5]

    asyncio.run(scene())


def event(version: int, tenant: UUID = ONE) -> FeedEvent:
    """An event."""
    return FeedEvent(version, version - 1, tenant, f"kind.{version % 5}", f"things/{version}", ',"data":{}}')


def filters(count: int) -> list[Filter]:
    """Filters that differ and take each event of the first kinds."""
    return [Filter(types=frozenset({"kind.0", "kind.1", f"other.{number}"})) for number in range(count)]


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that were encoded."""
    found: list[int] = []
    frame = frames.frame

    def note(one: FeedEvent, prev_version: int | None) -> bytes:
        found.append(one.version)
        return frame(one, prev_version)

    monkeypatch.setattr(frames, "frame", note)
    return found


def test_an_event_is_encoded_once_for_all_filters(encodings: list[int]) -> None:
    events = [event(version) for version in range(1, 11)]
    encoded = EncodedEvents()
    made = {Audience(ONE, chosen).frames(events, encoded) for chosen in filters(200)}
    assert made == {Audience(ONE, filters(1)[0]).frames(events)}, "filters decide whether it is sent, not its bytes"
    assert len(encoded) == 4
    assert encodings[:4] == [1, 5, 6, 10]
    whole = Audience(ONE).frames(events, encoded)
    assert whole.count(b"prev_version") == 10
    assert Audience(ONE).frames(events) == whole


def test_events_for_many_filters_are_distributed_beside_other_work(
    monkeypatch: pytest.MonkeyPatch, encodings: list[int]
) -> None:
    """Each audience gets the events of its tenant alone; one that comes meanwhile misses nothing."""
    monkeypatch.setattr(feeds, "TURN_SECONDS", 0.0)

    async def scene() -> None:
        feed = Feed(cast(Database, None), FeedLimits())
        tail: Any = feed
        tail._at = Head(0, "leader", "leader")
        made = [Subscriber(Audience(ONE, chosen), 0, "leader", BUFFER, lambda: None) for chosen in filters(50)]
        made.append(Subscriber(Audience(OTHER), 0, "leader", BUFFER, lambda: None))
        for each in made:
            each.count_in(feed.budget)
            assert feed.attach(each)
        for each in made:
            while each.has_waiting:
                await each.next()
                each.mark_sent()
        events = [event(version) for version in range(1, 11)]
        running = asyncio.create_task(tail._distribute(events, Head(10, "leader", "leader")))
        await let_others_run(5)
        assert not running.done(), "others run between the audiences"
        late = Subscriber(Audience(ONE), 0, "leader", BUFFER, lambda: None)
        assert feed.attach(late)
        await running
        assert (await late.next() or b"").count(b"event: kind") == 10
        late.mark_sent()
        assert not late.has_waiting, "nothing comes twice"
        assert {(await each.next() or b"").count(b"event: kind") for each in made[:-1]} == {4}
        assert not made[-1].has_waiting, "nothing of another tenant"
        assert sorted(encodings).count(1) == 2, "once with its predecessor, once without"

    asyncio.run(scene())


def test_what_a_stream_that_catches_up_does_not_read_counts() -> None:
    async def scene() -> None:
        feed = Feed(cast(Database, None), FeedLimits())
        one = Subscriber(Audience(ONE), 0, "leader", BUFFER, lambda: None)
        reads = asyncio.Event()

        async def write(_: bytes) -> None:
            await reads.wait()

        delivery: Any = SubscriberDelivery(feed, one, write)
        one.push(b"x" * 500)
        sending = asyncio.create_task(delivery._send_waiting())
        await let_others_run(3)
        assert feed.budget.size == 500
        reads.set()
        await sending
        assert feed.budget.size == 0

    asyncio.run(scene())


def test_no_entry_is_kept_for_tenants_for_which_nothing_waits() -> None:
    budget: Any = BufferBudget(1_000, 1_000)
    for number in range(20):
        (one,) = subscribers(1, uuid.UUID(int=number), budget)
        one.push(b"x")
        one.release()
    assert not budget._by_tenant
