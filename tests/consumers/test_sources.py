"""The same consumer from the feed and from NATS, over real servers: switched, cut, restarted, behind what is kept."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

import httpx
import nats
import pytest

from berth.client import AsyncClient, Client, EventStubbed, Invalid, LogTruncated, Unauthenticated, VersionInFuture
from tests.api.calling import Caller, new_tenant
from tests.consumers.effects import consumer_of, effects, position, run_until
from tests.log.streaming import leave
from tests.proxy import Mode, Proxies
from tests.support.log_sources import Telling, telling
from tests.support.waiting import async_wait_for

__all__ = ["telling"]


def test_one_consumer_switches_between_feed_and_nats_without_loss_or_double_effect(telling: Telling) -> None:
    tenant = new_tenant(telling.admin)
    names: dict[str, Caller | None] = {"switching": None, "tenant's switching": tenant}
    for kind in itertools.islice(itertools.cycle(["feed", "nats"]), 5):
        leave(telling.database, tenant, 20)
        leave(telling.database, None, 5)
        for name, caller in names.items():
            telling.consume(name, kind, telling.versions(caller)[-1], caller)
    for name, caller in names.items():
        assert effects(telling.database, name) == telling.versions(caller)
    ids = telling.database.execute(
        "select count(*) from effects e join log l on l.version = e.version and l.event_id = e.event_id "
        "and l.event_type = e.event_type where consumer = 'switching'"
    ).fetchone()
    assert ids == (len(telling.versions()),)


def test_a_connection_that_is_cut_again_and_again_loses_nothing(telling: Telling) -> None:
    tenant = new_tenant(telling.admin)
    leave(telling.database, tenant, 3_000)
    until, where = telling.head(), httpx.URL(telling.address)

    proxies = Proxies()
    proxy = proxies.make("feed", where.port or 80)

    async def run() -> None:
        async with telling.source("feed", tenant, f"http://127.0.0.1:{proxy.port}") as source:
            consumer = consumer_of(telling.url, "cut", source, batch_max=100)
            done = asyncio.create_task(run_until(consumer, lambda: position(telling.database, "cut") == until))
            for reached in (1, 500, 1_500):
                await async_wait_for(
                    lambda reached=reached: len(effects(telling.database, "cut")) >= reached,  # type: ignore[misc]
                    f"{reached} effects",
                )
                proxy.set_mode(Mode.RESET)
                proxy.set_mode(Mode.PASS)
            await done

    try:
        asyncio.run(run())
    finally:
        proxies.close()
    assert effects(telling.database, "cut") == telling.versions(tenant)


@pytest.mark.full
def test_a_stream_made_anew_gives_nothing_twice(telling: Telling) -> None:
    leave(telling.database, None, 10)
    telling.consume("rebuilt", "nats", telling.head())

    async def delete() -> None:
        connection = await nats.connect(telling.nats_url)
        await connection.jetstream().delete_stream("BERTH_LOG")
        await connection.close()

    def leave_more() -> int:
        leave(telling.database, None, 10)
        return telling.head()

    async def run() -> None:
        async with telling.source("nats") as source:
            until = 0
            consumer = consumer_of(telling.url, "rebuilt", source)
            going = asyncio.create_task(run_until(consumer, lambda: 0 < until == position(telling.database, "rebuilt")))
            await async_wait_for(lambda: consumer.position is not None, "the consumer to begin")
            await delete()
            until = leave_more()
            await going

    asyncio.run(run())
    assert effects(telling.database, "rebuilt") == telling.versions()


def test_events_come_as_an_iterator_of_either_client(telling: Telling) -> None:
    tenant = new_tenant(telling.admin)
    before = telling.head()
    leave(telling.database, tenant, 30)
    leave(telling.database, tenant, 3, "node.offline")
    leave(telling.database, None, 4)
    until = telling.head()

    async def awaited(**chosen: Any) -> list[Any]:
        async with AsyncClient(telling.address, tenant.key) as client:
            return [event async for event in client.events(before, until=until, **chosen)]

    with Client(telling.address, tenant.key) as client:
        told = list(client.events(before, until=until))
        assert [e.version for e in told] == [v for v in telling.versions(tenant) if v > before]
        assert asyncio.run(awaited()) == told
        offline = list(client.events(before, types=["node.offline"], until=until))
        assert [e.event_type for e in offline] == ["node.offline"] * 3
        assert asyncio.run(awaited(types=["node.offline"])) == offline
        assert [e.data["n"] for e in client.events(before, subjects=["things/1"], until=until)] == [1, 1]
        assert list(client.events(until, until=until)) == []
        with pytest.raises(VersionInFuture):
            next(client.events(until + 1_000))
        with pytest.raises(Invalid):
            next(client.events(before, types=["nonsense"]))
        coming = client.events()
        first = next(client.events(before))
    assert (first.data["n"], first.tenant_id) == (1, uuid.UUID(tenant.tenant_id))
    assert coming is not None
    with Client(telling.address, "berth_aaaaaaaa_wrong") as stranger, pytest.raises(Unauthenticated):
        next(stranger.events(before))


def _one(telling: Telling, kind: str, name: str, begin_after: int) -> None:
    async def run() -> None:
        async with telling.source(kind) as source:
            await run_until(consumer_of(telling.url, name, source, begin_after=begin_after), lambda: False)

    asyncio.run(run())


def test_an_event_that_nats_cannot_carry_is_sent_by_the_feed(telling: Telling) -> None:
    telling.database.execute(
        "insert into outbox (event_type, correlation_id, subject, payload) values ('no token', uuidv7(), 'things/1', '{}')"
    )
    stub = telling.head()
    leave(telling.database, None, 1)
    with pytest.raises(EventStubbed) as raised:
        _one(telling, "nats", "stub", stub - 1)
    assert raised.value.extra == {"version": stub}
    telling.consume("stub", "feed", stub + 1)
    assert effects(telling.database, "stub") == [stub, stub + 1]


def test_behind_what_is_kept_is_a_named_end(telling: Telling) -> None:
    """Last, because it takes away what the others read."""
    leave(telling.database, None, 20)
    first = telling.head() - 5

    async def purge() -> None:
        connection = await nats.connect(telling.nats_url)
        stream = connection.jetstream()

        async def published() -> bool:
            return (await stream.stream_info("BERTH_LOG")).state.last_seq >= first

        await async_wait_for(published, f"NATS to have version {first}")
        await stream.purge_stream("BERTH_LOG", seq=first)
        await connection.close()

    asyncio.run(purge())
    telling.database.execute("update log_first set version = %s", (first,))
    for kind in ("feed", "nats"):
        with pytest.raises(LogTruncated) as raised:
            _one(telling, kind, f"late {kind}", 2)
        assert raised.value.extra["first_version"] == first
        assert effects(telling.database, f"late {kind}") == []
