"""Pools of nodes, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from typing import Literal

from berth.client.calls.call import Call, read_page, write
from berth.client.hardware.pools import Pool
from berth.client.models import Page

POOLS = "/api/v1/admin/pools"


def list_pools(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Pool]]:
    """Pools in the order in which their first nodes were registered."""
    return read_page(POOLS, Pool, limit=limit, cursor=cursor)


def set_pool_attestation(
    pool_id: int, *, policy: Literal["off", "offered", "required"], idempotency_key: str | None = None
) -> Call[Pool]:
    """Say whether the nodes of a pool prove their TPMs; a node with its own policy keeps that. Raises `NotFound`."""
    return write("PUT", f"{POOLS}/{pool_id}/attestation", Pool, {"policy": policy}, idempotency_key)
