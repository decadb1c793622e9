"""Memory of each process over a fleet of 50,000 nodes, after a load of creates has gone through all of them."""

from __future__ import annotations

from dataclasses import replace

import psycopg

from benchmarks.figures import Figure
from benchmarks.load import drive
from benchmarks.running import bench, memory_megabytes, wait_for_log
from berth.local.processes import issuer_plan, orchestrator_plan, relay_plan, webhooks_plan, worker_plan
from berth.local.servers import LocalNats, LocalTemporal, free_port

NODES = 50_000
CREATES = 5_000
MEGABYTES_MAX = 300.0
LIMITED = ("api", "relay")


def run(quick: bool) -> list[Figure]:
    """API, node API, relay and worker; proportional set size in MB."""
    with bench() as servers:
        nats = LocalNats(servers.directory / "servers" / "nats", free_port(), free_port())
        temporal = LocalTemporal(servers.directory / "servers" / "temporal", free_port(), free_port())
        nats.start()
        temporal.start()
        try:
            url, tenants = servers.fleet(NODES)
            endpoints = replace(servers.endpoints(url), nats_url=nats.url, temporal_address=temporal.address)
            children = [
                servers.start(plan)
                for plan in (
                    orchestrator_plan("public", endpoints, servers.authority, free_port()),
                    orchestrator_plan("node", endpoints, servers.authority, free_port()),
                    issuer_plan(endpoints, servers.authority, free_port()),
                    relay_plan(endpoints, free_port()),
                    worker_plan(endpoints, servers.authority, free_port()),
                    webhooks_plan(endpoints, servers.authority, free_port()),
                )
            ]
            drive([endpoints.public_port], 64, 500 if quick else CREATES, tenants)
            with psycopg.connect(url, autocommit=True) as database:
                wait_for_log(database)
            return [
                Figure(
                    f"memory_{child.name.replace('-', '_')}", memory_megabytes(child), "MB",
                    MEGABYTES_MAX if child.name in LIMITED else None, note=f"over {NODES:,} nodes",
                )
                for child in children
            ]  # fmt: skip
        finally:
            temporal.stop()
            nats.stop()
