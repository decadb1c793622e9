"""Filtered streams and sockets of two tenants: each receives its own events, read from the log and from the tail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.log.queries import read_feed
from orchestrator.log.store.feed import Filter
from tests.allocations.driving import run_with
from tests.allocations.seeding import add_tenant, connect
from tests.api.calling import Caller, new_tenant
from tests.log.listening import Listener
from tests.log.streaming import leave
from tests.support.log_versions import version
from tests.support.streams import Message, Open, socket, stream

FILTERS = [{"types": ["provisioning.*"]}, {"types": ["provisioning.active"]}, {"subject": ["things/*"]}]


def until(messages: Iterator[Message], head: int) -> list[Message]:
    """All events before the checkpoint that has scanned up to `head`."""
    found = []
    for one in messages:
        if "scanned_to" not in one:
            found.append(one)
        elif one["scanned_to"] >= head:
            return found
    raise AssertionError("the stream ended")


def write(listener: Listener, *tenants: Caller | None) -> int:
    """Matching events of all of them, mixed; the head of the log behind them."""
    for _ in range(3):
        for tenant in tenants:
            leave(listener.database, tenant, 2, "provisioning.active")
    return int(version(listener.admin)["version"])


@pytest.mark.parametrize("query", FILTERS, ids=["family", "type", "subject"])
@pytest.mark.parametrize("opened", [stream, socket], ids=["stream", "socket"])
def test_a_filtered_stream_carries_only_its_tenants_events(opened: Open, query: Message, listener: Listener) -> None:
    one, other = new_tenant(listener.admin), new_tenant(listener.admin)
    after = version(listener.admin)["version"]
    head = write(listener, one, other, None)
    with opened(one, after=after, **query) as first, opened(other, after=after, **query) as second:
        for tenant, messages in ((one, first), (other, second)):
            events = until(messages, head)
            assert [event["tenant_id"] for event in events] == [tenant.tenant_id] * 6, "from the log"
        head = write(listener, other, None, one)
        for tenant, messages in ((one, first), (other, second)):
            events = until(messages, head)
            assert [event["tenant_id"] for event in events] == [tenant.tenant_id] * 6, "from the tail"


@pytest.mark.parametrize("chosen", [Filter(), Filter(families=("node.",)), Filter(collections=("things/",))])
def test_a_page_of_the_log_has_only_the_tenants_events(chosen: Filter, database_url: str) -> None:
    with connect(database_url) as database:
        tenants = [add_tenant(database, name).tenant_id for name in ("one", "other")]
        for tenant in (*tenants, None, *tenants):
            leave(database, Caller(None, None, tenant and str(tenant)), 2)  # type: ignore[arg-type]
        database.execute("select log_advance(1000)")
    scans = run_with(
        database_url,
        lambda context: read_feed(context.database, 0, 10, tenants[1], chosen),
    )
    assert [event.tenant_id for event in scans.events] == [tenants[1]] * 4
