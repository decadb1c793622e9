"""First boots of guests, by the heartbeats of their nodes: one event for each disk, and nothing of another node's guests."""

from __future__ import annotations

import itertools
import uuid
from datetime import datetime
from typing import Any

import pytest

from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from node_agent.wire.first_boot import DETAIL_MAX, ENDED, FirstBoot, FirstBootStatus
from node_agent.wire.guests import GuestReport
from orchestrator.allocations.first_boot import first_boot_after
from orchestrator.allocations.queries import find_allocation
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context
from tests.allocations.driving import allocation_of, provision, release, rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed
from tests.health.sights import contact

PENDING, DONE, ERROR = FirstBootStatus.PENDING, FirstBootStatus.DONE, FirstBootStatus.ERROR


async def see(
    context: Context,
    node_id: uuid.UUID,
    allocation_id: uuid.UUID,
    status: FirstBootStatus | None,
    detail: str | None = None,
    after: datetime | None = None,
) -> None:
    """A heartbeat with a complete inventory that names one guest."""
    gathered_after = after or await contact(context, node_id)
    first_boot = None if status is None else FirstBoot(status=status, detail=detail)
    held = HeldAllocation(
        allocation_id=allocation_id, slots=[0], fence=7, state=GuestReport.RUNNING, first_boot=first_boot
    )
    inventory = HeldInventory(gathered_after=gathered_after, allocations=[held])
    beat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=inventory)
    await record_heartbeat(context, node_id, beat, sandbox_allowed=True)


async def shown(context: Context, allocation_id: uuid.UUID) -> tuple[Any, Any]:
    """What the tenant reads: the status and its detail."""
    guest = (await find_allocation(context.database, allocation_id, None))["guest"]
    assert (guest["first_boot"]["since"] is None) is (guest["first_boot"]["status"] == "unknown")
    return guest["first_boot"]["status"], guest["first_boot"]["detail"]


def events(url: str, allocation_id: uuid.UUID) -> list[tuple[Any, Any]]:
    """Status and detail of each event of a first boot, in order."""
    return [
        tuple(row)
        for row in rows_of(
            url,
            "select payload ->> 'status', payload ->> 'detail' from outbox"
            " where event_type = 'allocation.first_boot_ended' and subject = %s order by id",
            f"allocations/{allocation_id}",
        )
    ]


def test_it_is_unknown_then_pending_then_ended_with_one_event_and_one_line_of_the_timeline(database_url: str) -> None:
    seeded = seed(database_url)
    node, mine = seeded.nodes[0].id, create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        assert await shown(context, mine) == ("unknown", None)
        await see(context, node, mine, None)
        assert await shown(context, mine) == ("unknown", None), "an agent of the version before says nothing"
        await see(context, node, mine, PENDING)
        began = allocation_of(database_url, mine)
        await see(context, node, mine, PENDING)
        assert allocation_of(database_url, mine) == began, "a repeated report changes nothing"
        assert events(database_url, mine) == []
        await see(context, node, mine, ERROR, "runcmd")
        assert await shown(context, mine) == ("error", "runcmd")
        await see(context, node, mine, DONE, "a lie")
        await see(context, node, mine, PENDING)
        await see(context, node, mine, None)
        assert await shown(context, mine) == ("error", "runcmd"), "it ended once"

    run_with(database_url, way)
    assert events(database_url, mine) == [("error", "runcmd")]
    tenants = rows_of(
        database_url, "select tenant_id from outbox where event_type = 'allocation.first_boot_ended'"
    )  # fmt: skip
    assert tenants == [(seeded.tenant_id,)]
    notes = rows_of(
        database_url,
        "select kind, code, detail from allocation_timeline where allocation_id = %s and actor_id = 'first_boot'", mine,
    )  # fmt: skip
    assert notes == [("note", "first_boot_ended", "error: runcmd")]


@pytest.mark.parametrize("status", [FirstBootStatus.NOT_APPLICABLE, FirstBootStatus.UNKNOWN])
def test_what_does_not_end_is_shown_and_not_announced(database_url: str, status: FirstBootStatus) -> None:
    seeded = seed(database_url)
    node, mine = seeded.nodes[0].id, create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        await see(context, node, mine, status)
        assert allocation_of(database_url, mine)["first_boot"] == status

    run_with(database_url, way)
    assert events(database_url, mine) == []


def test_a_report_from_before_it_was_active_of_another_node_or_after_its_release_changes_nothing(
    database_url: str,
) -> None:
    seeded = seed(database_url, slice_nodes=2)
    mine = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        before = {node.id: await contact(context, node.id) for node in seeded.nodes}
        await provision(context, database_url, mine)
        home = allocation_of(database_url, mine)["node_id"]
        (other,) = before.keys() - {home}
        await see(context, home, mine, DONE, after=before[home])
        await see(context, other, mine, DONE)
        assert await shown(context, mine) == ("unknown", None)
        await see(context, home, mine, DONE)
        assert await shown(context, mine) == ("done", None)
        await release(context, seeded, mine)
        await see(context, home, mine, ERROR)

    run_with(database_url, way)
    assert events(database_url, mine) == [("done", None)]
    row = allocation_of(database_url, mine)
    left = (row["first_boot"], row["first_boot_detail"], row["first_boot_since"])
    assert left == (None, None, None), "it was the guest's, which is gone"


def test_a_long_detail_fits_and_a_longer_one_is_no_message(database_url: str) -> None:
    seeded = seed(database_url)
    node, mine = seeded.nodes[0].id, create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        await see(context, node, mine, DONE, "x" * DETAIL_MAX)
        assert await shown(context, mine) == ("done", "x" * DETAIL_MAX)

    run_with(database_url, way)
    for detail in ("x" * (DETAIL_MAX + 1), "a\nb", "\x00", ""):
        with pytest.raises(ValueError, match="detail"):
            FirstBoot(status=DONE, detail=detail)


def test_the_database_refuses_a_status_without_its_time(database_url: str) -> None:
    seeded = seed(database_url)
    mine = create_allocation(database_url, seeded)
    with connect(database_url) as database, pytest.raises(Exception, match="first_boot_is_whole"):
        database.execute("update allocations set first_boot = 'done' where id = %s", (mine,))


def test_what_has_ended_never_changes_and_what_is_open_only_once() -> None:
    for now, reported in itertools.product((None, *FirstBootStatus), FirstBootStatus):
        after = first_boot_after(now, reported)
        assert after in (None, reported)
        assert after is not now
        if now in (None, PENDING):
            assert (after or now) is reported
        else:
            assert after is None
    assert set(FirstBootStatus) > ENDED
