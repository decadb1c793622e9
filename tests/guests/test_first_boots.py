"""Verbs and the first boot of a guest: a rebuild makes a new disk, whose first boot ends anew; every other verb keeps it."""

from __future__ import annotations

import pytest

from node_agent.protocol import FailureCode
from node_agent.wire.first_boot import FirstBootStatus
from orchestrator.allocations.states import Verb
from orchestrator.operations.execution import Context
from tests.allocations.driving import completed, failed, run_with, task_of
from tests.allocations.seeding import connect, seed
from tests.guests.changing import RESULTS, active
from tests.health.first_boots import events, see, shown


@pytest.mark.parametrize("verb", [Verb.REBUILD, Verb.REBOOT, Verb.STOP])
def test_a_rebuild_resets_it_and_no_other_verb_does(database_url: str, verb: Verb) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await see(context, node, guest.id, FirstBootStatus.ERROR, "runcmd")
        await guest.order(verb)
        await guest.begin()
        await see(context, node, guest.id, FirstBootStatus.PENDING)
        assert await shown(context, guest.id) == ("error", "runcmd"), "no report counts while a verb is in progress"
        await guest.finish()
        await guest.report(completed(task_of(database_url, guest.id), RESULTS[verb]))
        await guest.finish()
        kept = verb is not Verb.REBUILD
        assert await shown(context, guest.id) == (("error", "runcmd") if kept else ("unknown", None))
        await see(context, node, guest.id, FirstBootStatus.DONE)
        assert await shown(context, guest.id) == (("error", "runcmd") if kept else ("done", None))
        assert events(database_url, guest.id) == [("error", "runcmd"), *([] if kept else [("done", None)])]

    run_with(database_url, way)


def test_a_rebuild_that_was_refused_resets_nothing(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await see(context, seeded.nodes[0].id, guest.id, FirstBootStatus.DONE)
        await guest.order(Verb.REBUILD)
        await guest.begin()
        await guest.finish()
        await guest.report(failed(task_of(database_url, guest.id), FailureCode.TASK_REFUSED))
        await guest.finish()
        assert guest.row["guest_failure_code"] == "task_refused"
        assert await shown(context, guest.id) == ("done", None)

    run_with(database_url, way)


@pytest.mark.parametrize("end", ["ssh_readiness_timeout", "interrupted", "node_offline"])
def test_a_rebuild_that_failed_or_expired_may_have_made_the_disk_whose_first_boot_counts(
    database_url: str, end: str
) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await see(context, node, guest.id, FirstBootStatus.ERROR, "runcmd")
        await guest.order(Verb.REBUILD)
        await guest.begin()
        if end == "node_offline":
            with connect(database_url) as connection:
                connection.execute("update nodes set online = false")
                connection.execute("update node_tasks set expires_at = clock_timestamp() where state = 'queued'")
        else:
            await guest.finish()
            await guest.report(failed(task_of(database_url, guest.id), FailureCode(end)))
        await guest.finish()
        assert guest.row["guest_failure_code"] == end
        assert await shown(context, guest.id) == ("unknown", None)
        await see(context, node, guest.id, FirstBootStatus.DONE)
        assert await shown(context, guest.id) == ("done", None)

    run_with(database_url, way)
