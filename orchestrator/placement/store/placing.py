"""Places creates: the claim, the allocation, its operation and its event commit together (P1, P2).

One server-side call (`place_allocations`, migrations) does a whole batch under one savepoint, and each item under its own
when a constraint refuses one. What to try is decided by the pure placement package; this hands the decision over and
reads the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import sqlalchemy.exc

from orchestrator.database.sqlstates import QUOTA_MOVED, sqlstate_of
from orchestrator.database.transactions import WAITS_BRIEFLY, Reading, Transaction
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import Admitted, AdmittedUnits
from orchestrator.placement.windows import Pick


class QuotaMoved(Exception):
    """A tenant's quota was used up by a rival between the look and the lock; place again with the lock first."""


@dataclass(frozen=True, slots=True)
class Create:
    """One create, as its tenant asked for it."""

    operation: Operation
    tenant_id: UUID
    actor_id: str
    sku: str
    gpus: int
    region: str
    image: str | None
    ssh_key_ids: tuple[UUID, ...]
    name: str | None
    labels: dict[str, str]
    user_data: str | None
    correlation_id: UUID
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """A create whose request was admitted. `wait` locks a busy node instead of passing over it.

    `pick`: the node and slots that were found free for its window; no other is tried.
    """

    create: Create
    admitted: Admitted
    start_seconds: float
    window_seconds_max: float
    wait: bool = False
    pick: Pick | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What a second, lock-free look at a pool finds: whether some node fits now, and how much is free in all."""

    fits: bool
    free_gpus: int


_ALONE = "select place_allocations(cast(:items as jsonb), :quota_first)"
_TOGETHER = f"""
with briefly as materialized (select {WAITS_BRIEFLY} as waits)
select place_allocations(cast(:items as jsonb), :quota_first) from briefly
"""


async def place_all(tx: Transaction, placements: Sequence[Placement], *, quota_first: bool) -> list[dict[str, Any]]:
    """What became of each, in the order given; the words are those of `place_allocations`.

    Raises `QuotaMoved`, and `OperationInProgress` where somebody holds a key or a quota that one needs: for a list soon.
    """
    items = orjson.dumps([_item(n, placement) for n, placement in enumerate(placements)]).decode()
    try:
        result = await tx.execute(
            _TOGETHER if len(placements) > 1 else _ALONE, {"items": items, "quota_first": quota_first}
        )
    except sqlalchemy.exc.DBAPIError as error:
        if sqlstate_of(error) == QUOTA_MOVED:
            raise QuotaMoved from error
        raise
    answers: list[dict[str, Any]] = result.scalar_one()
    return sorted(answers, key=lambda answer: int(answer["n"]))


async def place_picked(tx: Transaction, placement: Placement, reservation_retire_seconds: float) -> dict[str, Any]:
    """As `place_all`, for one that brings its pick; ends holds past their deadline that are in its way (P5)."""
    assert placement.pick is not None
    item = _item(0, placement) | {
        "node_id": str(placement.pick.node_id),
        "mask": placement.pick.mask,
        "reservation_retire_seconds": reservation_retire_seconds,
    }
    try:
        result = await tx.execute("select place_in_window(cast(:item as jsonb))", {"item": orjson.dumps(item).decode()})
    except sqlalchemy.exc.DBAPIError as error:
        if sqlstate_of(error) == QUOTA_MOVED:
            raise QuotaMoved from error
        raise
    answers: list[dict[str, Any]] = result.scalar_one()
    return answers[0]


def _item(n: int, placement: Placement) -> dict[str, Any]:
    create, admitted = placement.create, placement.admitted
    choices = admitted.decision.choices
    ends = {} if create.ends_at is None else {
        "ends_at": create.ends_at.isoformat(), "window_seconds_max": placement.window_seconds_max,
    }  # fmt: skip
    return ends | {
        "n": n,
        "tenant_id": str(create.tenant_id),
        "key": create.operation.key,
        "fingerprint": create.operation.fingerprint.hex(),
        "retire_seconds": create.operation.retention_seconds,
        "correlation_id": str(create.correlation_id),
        "request_id": create.operation.request_id,
        "actor_id": create.actor_id,
        "sku": admitted.sku.name,
        "sku_row_version": admitted.sku.row_version,
        "shape": admitted.sku.shape,
        "gpu_model": admitted.sku.gpu_model,
        "gpus": admitted.gpus,
        "region": admitted.pool.region,
        "pool_id": admitted.pool.pool_id,
        "image": admitted.image.name,
        "image_row_version": admitted.image.row_version,
        "price_version": admitted.sku.price_version,
        "name": create.name,
        "labels": create.labels,
        "user_data": create.user_data,
        "ssh_key_ids": [str(key) for key in create.ssh_key_ids],
        "classes": [choice.fit.number for choice in choices],
        "lows": [choice.low for choice in choices],
        "highs": [choice.high for choice in choices],
        "wait": placement.wait,
        "start_seconds": placement.start_seconds,
    }


# Counting stops at `gpus` nodes of a class, so the look costs the same over any fleet.
_ROOM = """
select coalesce(bool_or(c.fits), false) as fits, coalesce(sum(c.free * found.nodes), 0) as free_gpus
from unnest(cast(:classes as smallint[]), cast(:frees as integer[]), cast(:fits as boolean[])) as c(class, free, fits)
cross join lateral (
    select count(*) as nodes from (
        select from nodes n where n.pool_id = :pool and n.fit_class = c.class and n.state = 'active' and n.online limit :gpus
    ) enough
) found
where found.nodes > 0
"""


async def look_for_room(reading: Reading, admitted: AdmittedUnits) -> Room:
    """Look without locks and without passing over locked nodes (TRAPS: SKIP LOCKED can answer "full" when only busy)."""
    fitting = [(choice.fit, True) for choice in admitted.decision.choices]
    others = [(fit, False) for fit, _ in admitted.decision.rejected if fit.free > 0]
    listed = fitting + others
    row = (
        await reading.execute(
            _ROOM,
            {
                "classes": [fit.number for fit, _ in listed],
                "frees": [fit.free for fit, _ in listed],
                "fits": [fits for _, fits in listed],
                "pool": admitted.pool.pool_id,
                "gpus": admitted.gpus,
            },
        )
    ).one()
    return Room(row.fits, int(row.free_gpus))
