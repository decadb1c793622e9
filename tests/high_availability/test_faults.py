"""A primary dies, is lost or freezes under load: nothing acknowledged is lost, and a deposed primary serves nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import nats
import psycopg
import pytest
from nats.aio.client import Client
from nats.js.api import StreamInfo

from berth.cli.deployment.stream_check import check_stream
from berth.local.high_availability.member import Member
from tests.high_availability.stacks import (
    Load,
    Watched,
    freeze,
    kill_postgres,
    lose_machine,
    stored,
    thaw,
    watched_stack,
)
from tests.outbox_relay.relays import STREAM, asked
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def running(server_directory: Path) -> Iterator[Watched]:
    """One stack for the faults of this file."""
    with watched_stack(server_directory / f"ha-{uuid.uuid4().hex[:8]}" / "var") as watched:
        yield watched


def frozen_until_replaced(running: Watched, load: Load, member: Member) -> None:
    """The machine pauses, another member is promoted, and the machine goes on with a server that is a primary still."""
    before = running.leader_id()
    frozen = freeze(member)
    try:
        wait_for(lambda: answers_as_another(running, before), "another member is promoted")
        load.wait_for_more(10)
    finally:
        thaw(frozen)


def answers_as_another(running: Watched, before: str) -> bool:
    """Whether a member is a primary, and not on the timeline of this one."""
    return any(leads_on(member) not in (None, before) for member in running.cluster.members)


def leads_on(member: Member) -> str | None:
    """What this member is if it is a primary; None if it does not answer or is a standby."""
    try:
        with psycopg.connect(
            member.url(), autocommit=True, connect_timeout=2, target_session_attrs="read-write"
        ) as connection:
            row = connection.execute("select postgres_leader_id()").fetchone()
    except psycopg.Error:
        return None
    return None if row is None else str(row[0])


FAULTS: dict[str, Callable[[Watched, Load, Member], None]] = {
    "postgresql killed": lambda running, load, member: kill_postgres(member),
    "machine lost": lambda running, load, member: lose_machine(member),
    "frozen": frozen_until_replaced,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_acknowledged_is_lost_and_a_deposed_primary_serves_nothing(running: Watched, fault: str) -> None:
    running.wait_whole()
    tenant = running.whole.tenant()
    held = tenant.wait(tenant.create(), "active")
    old, before = running.primary(), running.leader_id()
    with Load(tenant) as load:
        load.wait_for_more(20)
        FAULTS[fault](running, load, old)
        wait_for(lambda: answers_as_another(running, before), "another member is promoted")
        load.wait_for_more(20)
        # It returns by itself. Whatever it answers on the way, the first server of the address is never the deposed one.
        running.wait_whole()
        load.wait_for_more(20)
    new = running.leader_id()
    assert new.partition("-")[0] == before.partition("-")[0]
    assert new > before, "a newer timeline of the same system"
    assert running.primary() is not old
    assert running.leader_id(first=old) == new
    assert tenant.client.get_log_version().leader_id == new
    assert leads_on(old) is None
    assert set(load.acknowledged) <= stored(running.cluster)
    assert tenant.wait(tenant.create(region="us-1"), "active").status == "active"
    assert tenant.client.get_allocation(held.allocation_id).status == "active"
    for allocation_id in load.acknowledged:
        tenant.client.wait_for(allocation_id, {"released"}, 90)
    assert running.violations() == []


def test_a_killed_nats_server_stops_no_allocation_and_is_started_again(running: Watched) -> None:
    members = {server.name: server for server in running.nats_members}
    assert len(members) == 3
    info = stream_info(running)
    assert info.config.num_replicas == 3
    assert info.cluster is not None
    assert info.cluster.leader is not None
    leader = members[info.cluster.leader]
    tenant = running.whole.tenant()
    leader.kill()
    made = tenant.create()
    tenant.wait(made, "active")
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    wait_for(lambda: replicas_current(running) == 2, "the killed server has all of the stream again", 60)
    assert check_stream(running.cluster.url(), running.stack.endpoints.nats_url).kept


def stream_info(running: Watched) -> StreamInfo:
    """The stream as its leader describes it; waits until there is one."""

    async def ask(client: Client) -> StreamInfo:
        return await client.jetstream().stream_info(STREAM)

    found: list[StreamInfo] = []

    def look() -> bool:
        for address in running.stack.endpoints.nats_url.split(","):
            with suppress(nats.errors.Error, OSError):
                found[:] = [asked(address, ask)]
        return bool(found) and found[0].cluster is not None and bool(found[0].cluster.leader)

    wait_for(look, "the stream has a leader", 60)
    return found[0]


def replicas_current(running: Watched) -> int:
    """How many servers beside the leader have all of the stream."""
    cluster = stream_info(running).cluster
    return 0 if cluster is None else sum(bool(replica.current) for replica in cluster.replicas or ())


def test_a_start_goes_on_with_the_timeline_and_the_data_that_the_last_end_left(server_directory: Path) -> None:
    directory = server_directory / f"ha-{uuid.uuid4().hex[:8]}" / "var"
    with watched_stack(directory) as first:
        tenant = first.whole.tenant()
        made = tenant.wait(tenant.create(), "active")
        leader_id = first.leader_id()
    with watched_stack(directory) as second:
        assert second.leader_id() == leader_id
        states = {part.name: part.state for part in second.stack.parts.values()}
        assert set(states.values()) == {"ready"}, states
        assert tenant.client.get_allocation(made.allocation_id).status == "active"
        assert second.violations() == []
