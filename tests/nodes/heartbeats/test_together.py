"""A heartbeat recorded together with others does exactly what one does alone; what changes more is left to be done alone."""

from __future__ import annotations

import asyncio
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from node_agent.wire.first_boot import FirstBoot, FirstBootStatus
from node_agent.wire.guests import GuestReport
from node_agent.wire.networks import SpanReport
from orchestrator.operations.execution import Context
from tests.allocations.driving import run_with
from tests.allocations.seeding import Seeded, connect, seed
from tests.nodes.heartbeats.twins import ALONE, TOGETHER, Twins

AGENT_RUNS = [uuid.UUID(int=number) for number in (1, 2)]
CHANGES = [
    "update nodes set online = false where id = {node}",
    "update nodes set state = 'cordoned' where id = {node} and state <> 'retired'",
    "update nodes set state = 'retired' where id = {node}",
    "update nodes set identity_conflict_at = clock_timestamp() where id = {node}",
    "update nodes set epoch = epoch + 1 where id = {node}",
    "update nodes set underlay = '192.0.2.7' where id = {node}",
    "update node_certificates set revoked_at = clock_timestamp() where node_id = {node}",
    "update node_certificates set not_after = clock_timestamp() where node_id = {node}",
    "update allocations set guest_verb = 'stop', waits_since = clock_timestamp() where id = {allocation}",
    "update allocations set active_at = clock_timestamp() + interval '1 hour' where id = {allocation}",
    "update pools set driver = 'libvirt'",
    "update pools set driver = 'other'",
    "update pools set driver = null",
]
BEATS = st.fixed_dictionaries(
    {
        "driver": st.sampled_from(["libvirt", "libvirt", "libvirt", "noop", "sandbox", "other", "redfish"]),
        "agent_version": st.sampled_from(["1", "2"]),
        "inventory": st.sampled_from(["fresh", "fresh", "first", "future", "before", None]),
        "held": st.booleans(),
        "guest": st.sampled_from([None, *GuestReport]),
        "first_boot": st.sampled_from([None, *FirstBootStatus]),
        "agent_run": st.sampled_from([None, *AGENT_RUNS]),
        "features": st.sampled_from([[], ["tenant_network"]]),
        "key_set_serial": st.sampled_from([None, 3]),
        "span": st.sampled_from([None, None, ("192.0.2.7", None), ("192.0.2.7", ""), ("192.0.2.8", "")]),
    }
)
STEADY = {
    "driver": "libvirt", "agent_version": "1", "inventory": "fresh", "held": True, "guest": GuestReport.RUNNING,
    "first_boot": None, "agent_run": None, "features": [], "key_set_serial": None, "span": None,
}  # fmt: skip
SAID: list[dict[str, Any]] = [
    {"driver": "noop"},
    {"driver": "redfish"},
    {"held": False},
    {"guest": GuestReport.DOWN},
    {"first_boot": FirstBootStatus.DONE},
    {"guest": GuestReport.STOPPED},
    {"inventory": "future"},
    {"inventory": "first"},
    {"inventory": "before"},
    {"inventory": "future", "held": False},
    {"inventory": "first", "held": False},
    {"inventory": "before", "held": False},
    {"inventory": None},
    {"agent_version": "2", "agent_run": AGENT_RUNS[0], "features": ["tenant_network"], "key_set_serial": 3},
    {"span": ("192.0.2.7", None)},
]
"""What an agent says beside what it said before."""


def heartbeat(form: dict[str, Any], allocation: uuid.UUID, times: dict[str, datetime]) -> Heartbeat:
    """A heartbeat of the agent of the node that this allocation is on."""
    inventory = None
    if form["inventory"] is not None:
        boot = None if form["first_boot"] is None else FirstBoot(status=form["first_boot"])
        one = HeldAllocation(
            allocation_id=allocation, slots=[0], fence=7, state=form["guest"], first_boot=boot
        )  # fmt: skip
        inventory = HeldInventory(
            gathered_after=times[form["inventory"]], allocations=[one] if form["held"] else []
        )  # fmt: skip
    span = None if form["span"] is None else SpanReport(underlay=form["span"][0], etag=form["span"][1])
    return Heartbeat(
        agent_version=form["agent_version"], driver=form["driver"], allocations=[allocation], inventory=inventory,
        key_set_serial=form["key_set_serial"], agent_run=form["agent_run"], features=form["features"], span=span,
    )  # fmt: skip


@pytest.fixture
def seeded(database_url: str) -> Seeded:
    return seed(database_url)


async def compare(context: Context, url: str, seeded: Seeded, steps: list[Any]) -> int:
    """Play the steps on new twins: two heartbeats that say the same, then the steps. How many were recorded together."""
    with connect(url) as connection:
        twins = Twins(connection, context)
        await twins.make(url, seeded)
        times = {"first": twins.now(), "before": twins.now(-timedelta(days=900))}
        for step in [STEADY, STEADY, *steps]:
            if isinstance(step, str):
                twins.change(step)
                continue
            twins.change("update nodes set last_seen_at = null where id = {node}")
            times |= {"fresh": twins.now(), "future": twins.now(timedelta(hours=1))}
            answers = [
                await twins.hear(which, heartbeat(step, twins.allocations[which], times)) for which in (TOGETHER, ALONE)
            ]
            assert answers[TOGETHER] == answers[ALONE], steps
            assert twins.state_of(TOGETHER) == twins.state_of(ALONE), steps
        return twins.heard_together


def test_whatever_changes_a_heartbeat_does_the_same_together_and_alone(database_url: str, seeded: Seeded) -> None:
    async def play(context: Context) -> list[int]:
        after_changes: list[list[Any]] = [[change, STEADY] for change in CHANGES]
        of_another: list[list[Any]] = [
            ["update pools set driver = null", STEADY | {"driver": "noop"}],
            [
                "update nodes set inventory = null, inventory_after = null where id = {node}",
                STEADY | {"inventory": "before"},
            ],
        ]
        said: list[list[Any]] = [[STEADY | said] for said in SAID]
        return [await compare(context, database_url, seeded, steps) for steps in [*after_changes, *of_another, *said]]

    assert min(run_with(database_url, play)) >= 1, "the second of two that say the same"


# Each example drives two allocations to `active`: shrinking one would take minutes.
@settings(
    max_examples=5,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.one_of(BEATS, BEATS, BEATS, st.just(STEADY), st.sampled_from(CHANGES)), max_size=12))
def test_a_heartbeat_does_the_same_together_and_alone(database_url: str, seeded: Seeded, steps: list[Any]) -> None:
    assert run_with(database_url, lambda context: compare(context, database_url, seeded, steps)) >= 1


def test_a_node_that_another_transaction_holds_delays_no_other(database_url: str, seeded: Seeded) -> None:
    async def play(context: Context) -> None:
        with connect(database_url) as connection, connect(database_url) as holder:
            twins = Twins(connection, context)
            await twins.make(database_url, seeded, 3)
            beat = Heartbeat(agent_version="1", driver="noop", allocations=[])
            for which in range(3):
                await twins.hear(which, beat)
            with holder.transaction():
                holder.execute("select from nodes where id = %s for no key update", (twins.nodes[1],))
                async with asyncio.timeout(4):  # less than the lock timeout
                    answers = await twins.hear_together(beat, [0, 1, 2])
            assert [answer is not None for answer in answers] == [True, False, True]
            assert None not in await twins.hear_together(beat, [0, 1, 2])

    run_with(database_url, play)


ONE_FAILS = """
create function fail() returns trigger language plpgsql as $$ begin raise exception 'planted'; end $$;
create trigger planted before update on nodes for each row when (new.id = '{}') execute function fail()
"""


def test_a_node_whose_heartbeat_fails_fails_no_other(database_url: str, seeded: Seeded) -> None:
    async def play(context: Context) -> None:
        with connect(database_url) as connection:
            twins = Twins(connection, context)
            await twins.make(database_url, seeded)
            beat = Heartbeat(agent_version="1", driver="noop", allocations=[])
            for which in range(2):
                await twins.hear(which, beat)
            connection.execute(ONE_FAILS.format(twins.nodes[1]).encode())
            assert await twins.hear_together(beat, [0, 1]) == [None, None], "each is to be decided alone"
            assert await twins.hear(0, beat) == "active None"

    run_with(database_url, play)


@pytest.mark.parametrize(
    "moment", ["2026-01-01T00:00:00+23:59", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"]
)
def test_any_time_that_the_protocol_allows_is_no_error(database_url: str, seeded: Seeded, moment: str) -> None:
    async def play(context: Context) -> None:
        with connect(database_url) as connection:
            twins = Twins(connection, context)
            await twins.make(database_url, seeded)
            beat = Heartbeat(agent_version="1", driver="noop", allocations=[])
            for which in range(2):
                await twins.hear(which, beat)
            inventory = HeldInventory.model_validate({"gathered_after": moment, "allocations": []})
            odd = beat.model_copy(update={"inventory": inventory})
            assert await twins.hear_together(odd, [0, 1]) == ["active None", "active None"]
            assert await twins.hear(ALONE, odd) == "active None"

    run_with(database_url, play)


def test_of_two_heartbeats_of_one_node_the_first_is_recorded_together(database_url: str, seeded: Seeded) -> None:
    async def play(context: Context) -> None:
        with connect(database_url) as connection:
            twins = Twins(connection, context)
            await twins.make(database_url, seeded, 1)
            beat = Heartbeat(agent_version="1", driver="noop", allocations=[])
            await twins.hear(0, beat)
            assert await twins.hear_together(beat, [0, 0]) == ["active None", None]

    run_with(database_url, play)
