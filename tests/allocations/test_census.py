"""Gauges of live rows: states, waits, tasks, and how long an allocation took."""

from __future__ import annotations

from prometheus_client import REGISTRY

from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.outcomes import Concluded
from orchestrator.database.census import take_census
from orchestrator.operations.execution import Context
from tests.allocations.driving import PROVISIONED, clean_up, completed, failed, release, report, run_with, task_of
from tests.allocations.seeding import create_allocation, seed
from worker.sweepers.census import set_census_gauges


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_tasks_and_ended_rights_are_counted_while_they_last(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await set_census_gauges(context)
        assert gauge("berth_worker_allocations", state="requested") == 1
        assert gauge("berth_worker_tasks", state="queued") == 0
        await begin_provisioning(context, allocation_id, "wf")
        await set_census_gauges(context)
        assert gauge("berth_worker_tasks", state="queued") == 1
        assert (gauge("berth_worker_oldest_task_seconds", state="queued") or 0.0) > 0.0
        task = task_of(database_url, allocation_id)
        await report(context, task, failed(task))
        await finish_provisioning(context, allocation_id)
        await set_census_gauges(context)
        assert gauge("berth_worker_tasks", state="queued") == 0
        assert gauge("berth_worker_claims_waiting", waits_for="cleanup") == 1
        assert (await take_census(context.database)).claims_waiting == {"cleanup": 1}
        await clean_up(context, database_url, allocation_id)
        await set_census_gauges(context)
        assert gauge("berth_worker_claims_waiting", waits_for="cleanup") == 0

    run_with(database_url, way)


def test_the_way_to_active_and_the_way_to_released_are_timed(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, completed(task, PROVISIONED))
        active = await finish_provisioning(context, allocation_id)
        assert isinstance(active, Concluded)
        assert (active.took_seconds or 0.0) > 0.0
        again = await finish_provisioning(context, allocation_id)
        assert isinstance(again, Concluded)
        assert again.took_seconds is None, "what was timed is not timed twice"
        await release(context, seeded, allocation_id)
        released = await clean_up(context, database_url, allocation_id)
        assert isinstance(released, Concluded)
        assert (released.took_seconds or 0.0) > 0.0

    run_with(database_url, way)
