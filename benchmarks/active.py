"""POST to active through every component, with node agents whose driver does nothing: what Berth itself costs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from uuid import UUID

from benchmarks.figures import Figure, percentile
from benchmarks.running import tenant_of, with_environment
from berth.client import Client
from berth.local.fleet import PATTERN, SLICE_SKU, PlannedNode
from berth.local.options import StackOptions
from berth.local.processes import ProcessPlan
from berth.local.stack import Stack

AGENTS = 2
P50_MS_MAX = 120.0
SAMPLES = 100
WARM = 5
POLL_SECONDS = 0.004
WAIT_SECONDS_MAX = 60.0


class NoopStack(Stack):
    """The local stack, with agents that answer every task at once."""

    def _agent(self, admin: Client, planned: PlannedNode) -> ProcessPlan:
        return with_environment(super()._agent(admin, planned), BERTH_AGENT_DRIVER="noop")


def run(quick: bool) -> list[Figure]:
    """One allocation at a time, from sending the POST to reading `active`; each is released before the next."""
    samples = 15 if quick else SAMPLES
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as directory:
        options = StackOptions(Path(directory) / "state", agents=AGENTS, wished_port=None)
        with NoopStack(options) as stack, tenant_of(stack) as (client, ssh_key_id):
            milliseconds = [_once(client, ssh_key_id) * 1_000 for _ in range(WARM + samples)][WARM:]
    return [
        Figure("post_to_active_p50", percentile(milliseconds, 0.5), "ms", P50_MS_MAX, note=f"{samples} one at a time"),
        Figure("post_to_active_p99", percentile(milliseconds, 0.99), "ms"),
    ]


def _once(client: Client, ssh_key_id: UUID) -> float:
    began = time.perf_counter()
    made = client.create_allocation(sku=SLICE_SKU, gpus=1, region=PATTERN[0][0], ssh_key_ids=[ssh_key_id])
    wait_for_state(client, made.allocation_id, "active")
    elapsed = time.perf_counter() - began
    client.release_allocation(made.allocation_id)
    wait_for_state(client, made.allocation_id, "released")
    return elapsed


def wait_for_state(client: Client, allocation_id: UUID, state: str) -> None:
    """Return once the allocation is in `state`. Raises RuntimeError if it fails or takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (found := client.get_allocation(allocation_id)).status != state:
        if time.monotonic() > deadline or found.status in ("failed", "release_failed"):
            raise RuntimeError(f"allocation {allocation_id} is {found.status}, not {state}")
        time.sleep(POLL_SECONDS)
