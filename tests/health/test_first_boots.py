"""First boots of guests, by the heartbeats of their nodes: one event for each disk, and nothing of another node's guests."""

from __future__ import annotations

import itertools

import pytest

from node_agent.wire.first_boot import DETAIL_MAX, ENDED, FirstBoot, FirstBootStatus
from orchestrator.allocations.first_boot import first_boot_after
from orchestrator.operations.execution import Context
from tests.allocations.driving import allocation_of, provision, release, rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed
from tests.health.first_boots import events, see, shown
from tests.health.sights import contact

PENDING, DONE, ERROR = FirstBootStatus.PENDING, FirstBootStatus.DONE, FirstBootStatus.ERROR


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
