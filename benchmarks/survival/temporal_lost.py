"""The loss of Temporal's store while allocations are provisioned: how long until the last of them is active."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from uuid import UUID

from benchmarks.figures import Figure
from benchmarks.running import tenant_of, with_environment
from berth.client import Client
from berth.local.fleet import PATTERN, SLICE_SKU, PlannedNode
from berth.local.options import StackOptions
from berth.local.processes import ProcessPlan
from berth.local.servers import LocalServer, LocalTemporal
from berth.local.stack import Stack

AGENTS = 2
ALLOCATIONS = 10
REGIONS = [region for region, _ in PATTERN[:AGENTS]]
LOSSES = 5
LAST_ACTIVE_SECONDS_MAX = 15.0
POLL_SECONDS = 0.02
WAIT_SECONDS_MAX = 120.0


class _Stack(Stack):
    """The local stack with agents that answer every task at once, unless they are held."""

    temporal: LocalTemporal

    def _agent(self, admin: Client, planned: PlannedNode) -> ProcessPlan:
        return with_environment(super()._agent(admin, planned), BERTH_AGENT_DRIVER="noop")

    def _start_server(self, server: LocalServer, where: str, stop_signal: signal.Signals) -> None:
        if isinstance(server, LocalTemporal):
            self.temporal = server
        super()._start_server(server, where, stop_signal)

    def signal_agents(self, number: signal.Signals) -> None:
        """Hold the agents (SIGSTOP), or let them go on (SIGCONT)."""
        for child in self._children:
            if child.name.startswith("agent ") and child.process is not None:
                os.kill(child.process.pid, number)

    def lose_temporal(self) -> None:
        """As if Temporal's disk had been lost and an empty server had taken its place."""
        self.temporal.kill()
        shutil.rmtree(self.temporal.directory)
        self.temporal.start()


def run(quick: bool) -> list[Figure]:
    """Ten provisions with their tasks issued and the nodes silent; the store is lost, and then the nodes answer."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as directory:
        options = StackOptions(Path(directory) / "state", agents=AGENTS, wished_port=None)
        with _Stack(options) as stack, tenant_of(stack) as (client, ssh_key_id):
            seconds = [_lose_once(stack, client, ssh_key_id) for _ in range(1 if quick else LOSSES)]
    every = ", ".join(f"{each:.1f}" for each in seconds)
    note = f"the last of {ALLOCATIONS} allocations, each time: {every} s"
    return [Figure("temporal_store_lost_to_active", max(seconds), "s", LAST_ACTIVE_SECONDS_MAX, note=note)]


def _lose_once(stack: _Stack, client: Client, ssh_key_id: UUID) -> float:
    stack.signal_agents(signal.SIGSTOP)
    made = [
        client.create_allocation(sku=SLICE_SKU, gpus=1, region=region, ssh_key_ids=[ssh_key_id]).allocation_id
        for region in itertools.islice(itertools.cycle(REGIONS), ALLOCATIONS)
    ]
    _wait(client, made, "provisioning")
    began = time.perf_counter()
    stack.lose_temporal()
    stack.signal_agents(signal.SIGCONT)
    _wait(client, made, "active")
    elapsed = time.perf_counter() - began
    for each in made:
        client.release_allocation(each)
    _wait(client, made, "released")
    return elapsed


def _wait(client: Client, allocations: list[UUID], state: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    for each in allocations:
        while (found := client.get_allocation(each)).status != state:
            if time.monotonic() > deadline or found.status in ("failed", "release_failed"):
                raise RuntimeError(f"allocation {each} is {found.status}, not {state}")
            time.sleep(POLL_SECONDS)
