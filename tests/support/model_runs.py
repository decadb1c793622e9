"""A run against the reference model, over a fresh database."""

from __future__ import annotations

import uuid

from tests.allocations.seeding import add_node, connect
from tests.model.driving import SEATS, Run

GPUS_LIMIT = 6


def fresh_run(url: str, run: Run) -> Run:
    """Another node and a quota that is free again; what was there before stays."""
    with connect(url) as connection:
        connection.execute("update nodes set state = 'cordoned'")
        connection.execute("update tenant_quotas set gpus_limit = gpus_used + %s", (GPUS_LIMIT,))
        run.seeded.nodes.append(
            add_node(connection, run.seeded.pools["gpu_slice"], f"n-{uuid.uuid4().hex[:12]}", "gpu_slice")
        )
        # Far from the units that nodes added later get.
        connection.execute("select setval('unit_numbers', greatest(1000000, nextval('unit_numbers')))")
        for seat in SEATS:
            connection.execute("insert into resources (id) values (%s) on conflict do nothing", (seat,))
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    return Run(url, run.context, run.seeded, run.catalogue, began=row[0])
