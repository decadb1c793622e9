"""`notifications` of the Python client against a real server: position, repeated events, reconnecting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import pytest

from berth.client import AsyncClient, Client, Event, Invalid, LogTruncated, QuotaExceeded, Unauthenticated
from tests.api.calling import Caller, new_tenant
from tests.log.listening import Listener
from tests.log.streaming import leave
from tests.support.listeners import listener
from tests.support.log_versions import version
from tests.support.waiting import async_wait_for, wait_for

__all__ = ["listener"]


def client_of(caller: Caller) -> Client:
    """The client, of this caller."""
    return Client(str(caller.http.base_url), caller.key)


@contextmanager
def ended_from_outside(listener: Listener) -> Iterator[None]:
    """Every socket ends; another can be opened behind the block."""
    listener.database.execute("update log_head set leader_id = '1-00000001'")
    try:
        wait_for(lambda: listener.metric("berth_api_notification_sockets") == 0, "the sockets to end")
        yield
    finally:
        listener.database.execute("update log_head set leader_id = postgres_leader_id()")


def test_it_reconnects_and_yields_each_event_once(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    begin = version(listener.admin)["version"]
    leave(listener.database, tenant, 3)
    told: list[Event] = []
    with client_of(tenant) as berth:
        for event in berth.notifications("desk", after=begin):
            told.append(event)
            if len(told) == 2:
                with ended_from_outside(listener):
                    leave(listener.database, tenant, 2)
            if len(told) == 5:
                break
        assert [event.data["n"] for event in told] == [1, 2, 3, 1, 2], (
            "a reconnect repeats no event that the client has returned"
        )
        assert [event.prev_version for event in told[1:]] == [event.version for event in told[:-1]]
        wait_for(lambda: listener.position(tenant, "desk") == told[3].version, "the four that were done to be kept")
        again = next(berth.notifications("desk", after=0))
        assert again == told[4], "the one whose body was left comes again"
        (shown,) = berth.iterate_notification_subscriptions()
        assert (shown.name, shown.version) == ("desk", told[3].version)
        berth.delete_notification_subscription("desk")
        assert list(berth.iterate_notification_subscriptions()) == []


def test_finished_events_are_acknowledged_while_no_event_arrives(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    begin = version(listener.admin)["version"]

    async def listen() -> list[Event]:
        told = []
        async with AsyncClient(str(tenant.http.base_url), lambda: str(tenant.key)) as berth:
            listening = berth.notifications("quiet", after=begin)
            async with aclosing(listening):
                told.append(await anext(listening))
                told.append(await anext(listening))
                waiting = asyncio.ensure_future(anext(listening))
                await async_wait_for(
                    lambda: listener.position(tenant, "quiet") == told[1].version, "the position to be kept"
                )
                await asyncio.to_thread(_end, listener, tenant)
                told.append(await waiting)
        return told

    leave(listener.database, tenant, 2)
    assert [event.data["n"] for event in asyncio.run(listen())] == [1, 2, 1]


def _end(listener: Listener, tenant: Caller) -> None:
    with ended_from_outside(listener):
        leave(listener.database, tenant, 1)


def test_without_a_subscription_it_continues_after_the_last_event(listener: Listener) -> None:
    begin = version(listener.admin)["version"]
    leave(listener.database, None, 2, "node.offline")
    leave(listener.database, None, 2, "node.online")
    with client_of(listener.admin) as berth:
        listening = berth.notifications(after=begin, types=["node.online"])
        first = next(listening)
        with ended_from_outside(listener):
            pass
        second = next(listening)
    assert [(one.version, one.prev_version) for one in (first, second)] == [(begin + 3, None), (begin + 4, None)]


def test_an_error_that_reconnecting_cannot_help_is_raised(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    leave(listener.database, tenant, 2)
    head = version(listener.admin)["version"]
    with client_of(tenant) as berth:
        with pytest.raises(Invalid):
            next(berth.notifications("no/name"))
        listener.database.execute("update log_first set version = %s", (head,))
        try:
            with pytest.raises(LogTruncated) as truncated:
                next(berth.notifications(after=head - 2))
            assert truncated.value.extra["first_version"] == head
        finally:
            listener.database.execute("update log_first set version = 1")
        for name in ("a", "b", "c"):
            next(berth.notifications(name, after=head - 1))
        with pytest.raises(QuotaExceeded):
            next(berth.notifications("d"))
    with Client(str(tenant.http.base_url), "berth_x") as stranger, pytest.raises(Unauthenticated):
        next(stranger.notifications())
