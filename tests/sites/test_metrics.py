"""Metrics and log lines of sites are those of docs/reference/metal/sites.md, and the worker's gauges follow the database."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry

from node_agent.site.metrics import SiteMetrics
from node_agent.wire.sites import BmcTaskKind
from orchestrator.sites import metrics as listener_metrics
from tests.sites.rotations import rotations
from worker import metrics as worker_metrics
from worker.sites.sweeping import measure_sites, sweep_bmc_tasks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/metal/sites.md").read_text()
EVENT = re.compile(r"\blog\.(?:info|warning|error|exception)\(\s*\"([a-z_]+)\"")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> set[str]:
    """The names in backquotes of the first column, without labels."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name.partition("{")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_the_page_names_every_metric() -> None:
    registry = CollectorRegistry()
    SiteMetrics(registry)
    worker = (worker_metrics.SITE_LEASES, worker_metrics.SITE_MACHINES, worker_metrics.SITE_TASKS)
    listener = (listener_metrics.TASKS_LEASED, listener_metrics.LEASES_REFUSED)
    families = [family for one in (registry, *worker, *listener) for family in one.collect()]
    made = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert first_cells(section("Metrics")) == made | {"berth_worker_swept_total"}


def test_the_page_names_every_log_line() -> None:
    sources = [path.read_text() for path in (ROOT / "node_agent/site").glob("*.py")]
    of_worker = {f"bmc_task_{end}" for end in ("issued", "failed", "unknown")}
    assert first_cells(section("Log lines")) == of_worker | {name for text in sources for name in EVENT.findall(text)}


def test_the_workers_metrics_follow_the_database(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:

            async def measured() -> list[float | None]:
                await measure_sites(stage.context)
                return [sample(f"berth_site_{one}", site="a-site") for one in ("lease_held", "machines", "tasks_open")]

            assert await measured() == [0, 0, 0]
            machine = await stage.machine()
            await machine.request(BmcTaskKind.LOOK)
            assert await measured() == [0, 1, 1]
            before = [sample("berth_worker_swept_total", kind=f"bmc_task_{one}") or 0 for one in ("issued", "failed")]
            await sweep_bmc_tasks(stage.context, 9)
            order = await stage.take(stage.first, machine)
            assert await measured() == [1, 1, 1]

            async def step() -> None:
                """Go on."""

            await stage.perform(stage.first, machine, order, step)
            assert await measured() == [1, 1, 0]
            await machine.request(BmcTaskKind.LOOK)
            await sweep_bmc_tasks(stage.context, 9)
            stage.fleet.connection.execute(
                "update bmc_tasks set waits_until = clock_timestamp() where ended_at is null"
            )
            await sweep_bmc_tasks(stage.context, 9)
            after = [sample("berth_worker_swept_total", kind=f"bmc_task_{one}") or 0 for one in ("issued", "failed")]
            assert [new - old for old, new in zip(before, after, strict=True)] == [1, 1]
            stage.expire()
            assert await measured() == [0, 1, 0]
            stage.fleet.connection.execute("delete from bmc_credentials; delete from bmc_tasks; delete from node_bmcs")
            stage.fleet.connection.execute(
                "delete from site_agent_certificates; delete from site_agents; delete from sites"
            )
            assert await measured() == [None, None, None], "a site that was removed disappears"

    asyncio.run(scene())
