"""SQL for availability now, one aggregate over the materialised fit of the nodes, and for the offers of a window query."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.database.transactions import Reading


@dataclass(frozen=True, slots=True)
class Availability:
    """Per SKU and region. `largest_now`: the largest allowed count that one node could take; 0 if none."""

    sku: str
    region: str
    free_gpus: int
    largest_now: int
    total_gpus: int


# Offers are paged first, so that only their pools are aggregated. A bare-metal node is free as a whole or not at all.
_READ = """
with offers as materialized (
    select s.name as sku, p.region, p.id as pool_id, s.allowed_counts
    from skus s join pools p on p.gpu_model = s.gpu_model and p.shape = s.shape
    where s.state = 'active' and (s.name, p.region) > (:after_sku, :after_region)
      and (cast(:sku as text) is null or s.name = :sku) and (cast(:region as text) is null or p.region = :region)
    order by s.name, p.region limit :limit
), fits as materialized (
    select f.pool_id, f.free, count(*) filter (where f.ready) as ready_nodes, sum(f.slot_count) as slots
    from (
        select n.pool_id, n.slot_count, n.state = 'active' and n.online as ready,
               case when n.shape = 'gpu_slice' or n.free_mask = (1::bigint << n.slot_count) - 1
                    then bit_count(n.free_mask::bit(64)) else 0 end as free
        from nodes n where n.state not in ('registered', 'retired') and n.pool_id in (select pool_id from offers)
    ) f group by f.pool_id, f.free
), pooled as (
    select pool_id, sum(free * ready_nodes)::bigint as free_gpus, sum(slots)::bigint as total_gpus
    from fits group by pool_id
)
select o.sku, o.region, coalesce(d.free_gpus, 0) as free_gpus, coalesce(d.total_gpus, 0) as total_gpus,
       coalesce((
           select max(wanted) from unnest(o.allowed_counts) wanted
           where exists (select from fits f join pools p on p.id = f.pool_id
                         where f.pool_id = o.pool_id and f.ready_nodes > 0
                           and (f.free = wanted or f.free > wanted and p.shape = 'gpu_slice'))
       ), 0) as largest_now
from offers o left join pooled d on d.pool_id = o.pool_id order by o.sku, o.region
"""


async def read_availability(
    reading: Reading, *, sku: str | None, region: str | None, after: tuple[str, str], limit: int
) -> list[Availability]:
    """Up to `limit` offers by SKU and region, with their free GPUs now."""
    values = {"sku": sku, "region": region, "after_sku": after[0], "after_region": after[1], "limit": limit}
    return [Availability(**row._mapping) for row in await reading.execute(_READ, values)]


@dataclass(frozen=True, slots=True)
class Offer:
    """A SKU in a region, and the pool that serves it. `total_gpus` counts nodes that are neither registered nor retired."""

    sku: str
    region: str
    pool_id: int
    shape: str
    allowed_counts: list[int]
    total_gpus: int


_OFFERS = """
with offers as materialized (
    select s.name as sku, p.region, p.id as pool_id, p.shape, s.allowed_counts
    from skus s join pools p on p.gpu_model = s.gpu_model and p.shape = s.shape
    where s.state = 'active' and (s.name, p.region) > (:after_sku, :after_region)
      and (cast(:sku as text) is null or s.name = :sku) and (cast(:region as text) is null or p.region = :region)
      and (cast(:gpus as integer) is null or :gpus = any (s.allowed_counts))
    order by s.name, p.region limit :limit
), totals as (
    select n.pool_id, sum(n.slot_count)::bigint as total_gpus from nodes n
    where n.pool_id in (select pool_id from offers) and n.state not in ('registered', 'retired') group by n.pool_id
)
select o.*, coalesce(t.total_gpus, 0) as total_gpus from offers o left join totals t on t.pool_id = o.pool_id
order by o.sku, o.region
"""


async def read_offers(
    reading: Reading, *, sku: str | None, region: str | None, gpus: int | None, after: tuple[str, str], limit: int
) -> list[Offer]:
    """Up to `limit` offers by SKU and region; with `gpus`, only those that allow this count."""
    values = {
        "sku": sku, "region": region, "gpus": gpus, "after_sku": after[0], "after_region": after[1], "limit": limit,
    }  # fmt: skip
    return [Offer(**row._mapping) for row in await reading.execute(_OFFERS, values)]
