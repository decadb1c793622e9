"""Reads what is offered: SKUs, images, pools and their node layouts."""

from __future__ import annotations

from collections import defaultdict

from orchestrator.database.transactions import Reading
from orchestrator.placement.inventory import Catalogue, Image, Layout, Pool, Sku

_SKUS = "select name, shape, gpu_model, allowed_counts, default_image, price_version, state, row_version from skus"
_IMAGES = (
    "select name, shapes, gpu_models, regions, state, row_version, cloud_init from images where deleted_at is null"
)
_POOLS = "select id, region, gpu_model, shape from pools"
_REGIONS = "select name from regions"
# A loose index scan: one probe per layout instead of one row per node.
_LAYOUTS = """
with recursive layouts as (
    (select pool_id, slot_count, half_slots from nodes order by pool_id, slot_count, half_slots limit 1)
    union all
    select following.* from layouts l cross join lateral (
        select n.pool_id, n.slot_count, n.half_slots from nodes n
        where (n.pool_id, n.slot_count, n.half_slots) > (l.pool_id, l.slot_count, l.half_slots)
        order by n.pool_id, n.slot_count, n.half_slots limit 1
    ) following
) select pool_id, slot_count, half_slots from layouts where slot_count > 0
"""


async def read_catalogue(reading: Reading) -> Catalogue:
    """Everything that is offered, in one snapshot."""
    layouts: defaultdict[int, list[Layout]] = defaultdict(list)
    for row in await reading.execute(_LAYOUTS):
        layouts[row.pool_id].append(Layout(row.slot_count, row.half_slots))
    skus = {
        row.name: Sku(
            row.name, row.shape, row.gpu_model, frozenset(row.allowed_counts), row.default_image, row.price_version,
            row.state == "active", row.row_version,
        )
        for row in await reading.execute(_SKUS)
    }  # fmt: skip
    images = {
        row.name: Image(
            row.name, frozenset(row.shapes), _maybe(row.gpu_models), _maybe(row.regions), row.state == "active",
            row.row_version, row.cloud_init,
        )
        for row in await reading.execute(_IMAGES)
    }  # fmt: skip
    pools = {
        (row.region, row.gpu_model, row.shape): Pool(
            row.id, row.region, row.gpu_model, row.shape, tuple(sorted(layouts[row.id]))
        )
        for row in await reading.execute(_POOLS)
    }
    regions = frozenset(row.name for row in await reading.execute(_REGIONS))
    return Catalogue(skus, images, pools, regions)


def _maybe(values: list[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)
