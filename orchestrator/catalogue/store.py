"""Regions, SKUs and images as operators write them and clients see them. Every change bumps the row's version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import select

from orchestrator.catalogue import tables
from orchestrator.catalogue.guest_size_store import lock_sizes, require_nodes
from orchestrator.catalogue.image_statement import ImageStatement, with_statement
from orchestrator.catalogue.refusals import GuestSizeFixed
from orchestrator.catalogue.rules import GuestSize
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import ImageUnavailable, NotFound


@dataclass(frozen=True, slots=True)
class Region:
    """Where nodes are."""

    name: str
    display_name: str


@dataclass(frozen=True, slots=True)
class Sku:
    """What is sold."""

    name: str
    shape: str
    gpu_model: str
    allowed_counts: list[int]
    default_image: str | None
    price_micro_per_gpu_second: int
    price_version: int
    state: str
    vcpus_per_gpu: int | None
    memory_bytes_per_gpu: int | None


@dataclass(frozen=True, slots=True)
class Image:
    """What a node boots. None: any model, every region."""

    name: str
    url: str
    sha256: str
    shapes: list[str]
    gpu_models: list[str] | None
    regions: list[str] | None
    state: str
    statement: ImageStatement


_PUT_REGION = """
insert into regions (name, display_name) values (:name, :display_name)
on conflict (name) do update set display_name = excluded.display_name
returning name, display_name, xmax = 0 as made
"""
# Price and state keep their value when they are left out: a forgotten member must not give GPUs away. The size never changes.
_PUT_SKU = """
insert into skus as old (name, shape, gpu_model, allowed_counts, default_image, price_micro_per_gpu_second, state, vcpus_per_gpu,
                         memory_bytes_per_gpu)
values (:name, :shape, :gpu_model, :allowed_counts, :default_image, coalesce(cast(:price as bigint), 0),
        coalesce(cast(:state as text), 'active'), cast(:vcpus as integer), cast(:memory_bytes as bigint))
on conflict (name) do update set
    shape = excluded.shape, gpu_model = excluded.gpu_model, allowed_counts = excluded.allowed_counts,
    default_image = excluded.default_image,
    price_micro_per_gpu_second = coalesce(cast(:price as bigint), old.price_micro_per_gpu_second),
    price_version = old.price_version
        + (coalesce(cast(:price as bigint), old.price_micro_per_gpu_second) <> old.price_micro_per_gpu_second)::integer,
    state = coalesce(cast(:state as text), old.state), row_version = old.row_version + 1
returning name, shape, gpu_model, allowed_counts, default_image, price_micro_per_gpu_second, price_version, state,
    vcpus_per_gpu, memory_bytes_per_gpu, xmax = 0 as made
"""
_FIND_SKU = "select gpu_model, state, vcpus_per_gpu, memory_bytes_per_gpu from skus where name = :name"
_KEEP_PRICE = """
insert into sku_prices (sku, price_version, price_micro_per_gpu_second) values (:sku, :price_version, :price)
on conflict do nothing
"""
_PUT_IMAGE = """
insert into images as old (name, url, sha256, shapes, gpu_models, regions, state)
values (:name, :url, :sha256, :shapes, :gpu_models, :regions, coalesce(cast(:state as text), 'active'))
on conflict (name) do update set
    url = excluded.url, sha256 = excluded.sha256, shapes = excluded.shapes, gpu_models = excluded.gpu_models,
    regions = excluded.regions, row_version = old.row_version + 1, deleted_at = null,
    size_bytes = case when excluded.sha256 = old.sha256 then old.size_bytes end,
    state = coalesce(cast(:state as text), case when old.deleted_at is null then old.state else 'active' end)
returning with (old as before) name, url, sha256, shapes, gpu_models, regions, state, format, firmware, login_user, cloud_init,
    readiness, readiness_port, disk_bytes_min, size_bytes, gpu_driver_version, fabric_manager_version,
    before.name is null or before.deleted_at is not null as made
"""
_PUT_STATEMENT = """
update images set
    format = :format, firmware = :firmware, login_user = :login_user, cloud_init = :cloud_init, readiness = :readiness,
    readiness_port = :readiness_port, disk_bytes_min = :disk_bytes_min, size_bytes = :size_bytes,
    gpu_driver_version = :gpu_driver_version, fabric_manager_version = :fabric_manager_version
where name = :name
"""
# The lock makes a deletion of the image wait for this transaction, and see what it wrote.
_SHARE_IMAGE = "select from images where name = :name and deleted_at is null for share"
_REGIONS = select(*(tables.regions.c[name] for name in Region.__slots__)).order_by(tables.regions.c.name)
_SKUS = select(*(tables.skus.c[name] for name in Sku.__slots__)).order_by(tables.skus.c.name)


async def put_region(tx: Transaction, region: Region) -> tuple[Region, bool]:
    """The region as written, and whether it was made."""
    row = (await tx.execute(_PUT_REGION, {"name": region.name, "display_name": region.display_name})).one()
    return Region(row.name, row.display_name), row.made


async def put_sku(
    tx: Transaction,
    *,
    name: str,
    shape: str,
    gpu_model: str,
    allowed_counts: Sequence[int],
    default_image: str | None,
    price_micro_per_gpu_second: int | None,
    state: str | None,
    size: GuestSize,
) -> tuple[Sku, bool]:
    """The SKU as written, and whether it was made. A changed price gets a new price version, which is kept for billing.

    Raises `ImageUnavailable` if the default image does not exist, `GuestSizeFixed`, `GuestSizeMisfit`, `GuestSizeUnsupported`.
    """
    await lock_sizes(tx)
    await _require_size(tx, name, shape, gpu_model, state, size)
    if default_image is not None:
        await _require_image(tx, default_image)
    values = {
        "name": name, "shape": shape, "gpu_model": gpu_model, "allowed_counts": sorted(set(allowed_counts)),
        "default_image": default_image, "price": price_micro_per_gpu_second, "state": state,
        "vcpus": size.vcpus, "memory_bytes": size.memory_bytes,
    }  # fmt: skip
    row = (await tx.execute(_PUT_SKU, values)).one()
    members = dict(row._mapping)
    made = members.pop("made")
    sku = Sku(**members)
    price = {"sku": name, "price_version": sku.price_version, "price": sku.price_micro_per_gpu_second}
    await tx.execute(_KEEP_PRICE, price)
    return sku, made


async def put_image(
    tx: Transaction,
    *,
    name: str,
    url: str,
    sha256: str,
    shapes: Sequence[str],
    gpu_models: Sequence[str] | None,
    regions: Sequence[str] | None,
    state: str | None,
    statement: ImageStatement | None,
) -> tuple[Image, bool]:
    """The image as written, and whether it was made. Without a statement it keeps the one it has, though not the
    size of another file.

    Raises `NotFound` if it names a region that is not there.
    """
    for region in regions or ():
        await require_region(tx, region)
    values = {
        "name": name, "url": url, "sha256": sha256, "shapes": sorted(set(shapes)), "state": state,
        "gpu_models": None if gpu_models is None else sorted(set(gpu_models)),
        "regions": None if regions is None else sorted(set(regions)),
    }  # fmt: skip
    row = (await tx.execute(_PUT_IMAGE, values)).one()
    members = with_statement(row._mapping)
    if members.pop("made"):
        made, statement = True, statement or ImageStatement()  # of a deleted image nothing is kept
    else:
        made = False
    if statement is not None:
        await tx.execute(_PUT_STATEMENT, {**asdict(statement), "name": name})
        members["statement"] = statement
    return Image(**members), made


async def require_region(reading: Reading, name: str) -> None:
    """Return if the region exists; raise `NotFound`."""
    if (await reading.execute("select from regions where name = :name", {"name": name})).first() is None:
        raise NotFound(f"there is no region {name!r}")


async def _require_size(
    tx: Transaction, name: str, shape: str, gpu_model: str, state: str | None, size: GuestSize
) -> None:
    """Return if the SKU may be put with this size, and its nodes can give it; those of a SKU in use gave it before."""
    there = (await tx.execute(_FIND_SKU, {"name": name})).first()
    if there is not None:
        kept = GuestSize(there.vcpus_per_gpu, there.memory_bytes_per_gpu)
        is_other = size.vcpus not in (None, kept.vcpus) or size.memory_bytes not in (None, kept.memory_bytes)
        if is_other or (kept.is_stated and shape != Shape.GPU_SLICE):
            raise GuestSizeFixed.of(name, kept)
        size = kept
    after = state or ("active" if there is None else there.state)
    was_offered = there is not None and (there.state, there.gpu_model) == ("active", gpu_model)
    if size.is_stated and after == "active" and not was_offered:
        await require_nodes(tx, name, gpu_model, size)


async def _require_image(reading: Reading, name: str) -> None:
    if (await reading.execute(_SHARE_IMAGE, {"name": name})).first() is None:
        raise ImageUnavailable(f"there is no image {name!r}")


async def list_regions(reading: Reading, after: str, limit: int) -> list[Region]:
    """Up to `limit` regions by name."""
    page = _REGIONS.where(tables.regions.c.name > after).limit(limit)
    return [Region(**row._mapping) for row in await reading.execute(page)]


async def list_skus(reading: Reading, after: str, limit: int) -> list[Sku]:
    """Up to `limit` SKUs by name, retired ones too."""
    page = _SKUS.where(tables.skus.c.name > after).limit(limit)
    return [Sku(**row._mapping) for row in await reading.execute(page)]
