"""Both workflows through real Temporal, NATS and Postgres: the worker's side of the way of one allocation (DESIGN §4)."""

from __future__ import annotations

from tests.lifecycle.driving import (
    release,
    run_with,
    transitions_of,
)
from tests.lifecycle.invariants import violations
from tests.lifecycle.seeding import create_allocation, seed
from tests.worker.harness import Processes, play_nodes


def test_an_allocation_comes_and_goes(processes: Processes) -> None:
    url = processes.url
    seeded = seed(url, slice_nodes=1, metal_nodes=1)
    processes.start_relay()
    processes.start_worker()
    ids = [create_allocation(url, seeded, gpus=2), create_allocation(url, seeded, shape="baremetal")]
    play_nodes(url, dict.fromkeys(ids, "active"))
    for allocation_id in ids:
        run_with(url, lambda context, one=allocation_id: release(context, seeded, one))
    play_nodes(url, dict.fromkeys(ids, "released"))
    for allocation_id in ids:
        assert transitions_of(url, allocation_id) == ["requested", "provisioning", "active", "releasing", "released"]
    assert violations(url) == []
