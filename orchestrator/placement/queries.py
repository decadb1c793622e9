"""Availability in a window, and the earliest time at which a request fits, per SKU and region.

The database packs the claims (`read_grounds`). The sweep over them runs in a thread, one request at a time, so that it does
not delay the event loop that serves creates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.clock import read_clock
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database, Reading
from orchestrator.placement.admission import Wanted, admit_units
from orchestrator.placement.earliest import Asked, Found, Grounds, find_earliest
from orchestrator.placement.inventory import Catalogue
from orchestrator.placement.store.availability import Availability, Offer, read_availability, read_offers
from orchestrator.placement.store.windows import PackedGrounds, micros, moment_of, read_grounds, unpack_grounds
from orchestrator.problems import NotFound, SkuUnavailable, UnavailableReason
from orchestrator.reservations.rules import Window, judge_window

_SWEEPING = ThreadPoolExecutor(max_workers=1, thread_name_prefix="availability")


@dataclass(frozen=True, slots=True)
class AskedAvailability:
    """A query for `count` times `gpus` (None: the smallest allowed count) in a window (None: from now on; open-ended)."""

    sku: str | None
    region: str | None
    gpus: int | None
    count: int
    starts_at: datetime | None
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class WindowAvailability(Availability):
    """Per SKU and region: how many allocations of `gpus` fit in the window, and the earliest time at which `count` fit.

    `free_gpus` and `largest_now` apply to the whole window. `reason`: why there is no `earliest_at`.
    """

    gpus: int
    count: int
    starts_at: datetime
    ends_at: datetime | None
    available: int
    earliest_at: datetime | None
    reason: str | None


async def list_availability(
    database: Database, *, sku: str | None, region: str | None, after: tuple[str, str], limit: int
) -> list[Availability]:
    """Up to `limit` offers after this SKU and region, with their free GPUs now."""
    return await read_replicated(
        database, lambda reading: read_availability(reading, sku=sku, region=region, after=after, limit=limit)
    )


async def find_availability(
    database: Database,
    catalogue: CatalogueCache,
    asked: AskedAvailability,
    *,
    window_seconds_max: float,
    after: tuple[str, str],
    limit: int,
) -> list[WindowAvailability]:
    """Up to `limit` offers after this SKU and region. Beginnings are evaluated until `window_seconds_max` from now.

    Raises `WindowInvalid`, `NotFound` for an unknown region, and `SkuUnavailable` for an unknown SKU, or one that the region
    or the number of GPUs excludes.
    """
    _require_offered(await catalogue.before_refusing(database.response_version), asked)

    async def read(reading: Reading) -> tuple[datetime, Window, list[Offer], list[int], PackedGrounds]:
        now = await read_clock(reading)
        window = judge_window(asked.starts_at, asked.ends_at, now=now, seconds_max=window_seconds_max)
        offers = await read_offers(
            reading, sku=asked.sku, region=asked.region, gpus=asked.gpus, after=after, limit=limit
        )
        pools = sorted({offer.pool_id for offer in offers})
        return now, window, offers, pools, await read_grounds(reading, pools, window.starts_at, now)

    now, window, offers, pools, packed = await read_replicated(database, read)
    horizon = now + timedelta(seconds=window_seconds_max)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_SWEEPING, _sweep, packed, pools, offers, asked, window, horizon)


def _require_offered(catalogue: Catalogue, asked: AskedAvailability) -> None:
    """Raise the refusal that a create with these parameters would meet by the catalogue alone."""
    if asked.region is not None and asked.region not in catalogue.regions:
        raise NotFound(f"there is no region {asked.region!r}; GET /api/v1/regions lists them")
    if asked.sku is None:
        return
    sku = catalogue.skus.get(asked.sku)
    gpus = asked.gpus if asked.gpus is not None or sku is None else min(sku.allowed_counts)
    if asked.region is not None or sku is None or not sku.active:
        admit_units(catalogue, Wanted(asked.sku, gpus or 1, asked.region or "", None))
    elif gpus not in sku.allowed_counts:
        counts = sorted(sku.allowed_counts)
        raise SkuUnavailable(
            f"gpus is {gpus}; {sku.name} allows {', '.join(map(str, counts))}",
            reason=UnavailableReason.COUNT_NOT_ALLOWED,
            allowed_counts=counts,
        )


def _sweep(
    packed: PackedGrounds,
    pools: Sequence[int],
    offers: Sequence[Offer],
    asked: AskedAvailability,
    window: Window,
    horizon: datetime,
) -> list[WindowAvailability]:
    grounds = unpack_grounds(packed, pools)
    found: dict[tuple[int, int], Found] = {}
    answers = []
    for offer in offers:
        gpus = min(offer.allowed_counts) if asked.gpus is None else asked.gpus
        if (offer.pool_id, gpus) not in found:
            found[offer.pool_id, gpus] = _look(grounds[offer.pool_id], offer.shape, gpus, asked.count, window, horizon)
        answers.append(_answer(offer, gpus, asked.count, window, found[offer.pool_id, gpus]))
    return answers


def _look(grounds: Grounds, shape: str, gpus: int, count: int, window: Window, horizon: datetime) -> Found:
    length = None if window.length is None else window.length // timedelta(microseconds=1)
    wanted = Asked(gpus, shape == Shape.BAREMETAL, count, micros(window.starts_at), length)
    return find_earliest(grounds, wanted, micros(horizon))


def _answer(offer: Offer, gpus: int, count: int, window: Window, found: Found) -> WindowAvailability:
    slices = offer.shape == Shape.GPU_SLICE
    fitting = [
        wanted for wanted in offer.allowed_counts
        if any(size == wanted or (slices and size > wanted) for size in found.sizes)
    ]  # fmt: skip
    return WindowAvailability(
        sku=offer.sku,
        region=offer.region,
        free_gpus=found.free_gpus,
        largest_now=max(fitting, default=0),
        total_gpus=offer.total_gpus,
        gpus=gpus,
        count=count,
        starts_at=window.starts_at,
        ends_at=window.ends_at,
        available=found.available,
        earliest_at=None if found.earliest is None else moment_of(found.earliest),
        reason=None if found.never is None else found.never.value,
    )
