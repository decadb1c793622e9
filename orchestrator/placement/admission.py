"""Admission: whether the catalogue and the node layouts can serve a request, and the node classes to try. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalogue.shapes import Shape
from orchestrator.placement.inventory import Catalogue, Image, Pool, Sku
from orchestrator.placement.ranking import Decision, decide
from orchestrator.problems import ImageUnavailable, SkuUnavailable, UnavailableReason


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for GPUs of a SKU in a region."""

    sku: str
    gpus: int
    region: str
    image: str | None
    has_user_data: bool = False


@dataclass(frozen=True, slots=True)
class AdmittedUnits:
    """A request for units that some node can serve, with the node classes to try, best first."""

    sku: Sku
    pool: Pool
    gpus: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Admitted(AdmittedUnits):
    """A request that some node can serve, with its image."""

    image: Image


@dataclass(frozen=True, slots=True)
class HeldUnits:
    """GPUs of a node that a reservation holds, with the node's properties."""

    gpus: int
    region: str
    gpu_model: str
    shape: str
    slot_count: int


@dataclass(frozen=True, slots=True)
class AdmittedUse:
    """SKU and image of an allocation on held units."""

    sku: Sku
    image: Image


def admit(catalogue: Catalogue, wanted: Wanted) -> Admitted:
    """Resolve a request. Raises `SkuUnavailable` with its reason, or `ImageUnavailable`."""
    units = admit_units(catalogue, wanted)
    image = _image_of(catalogue, units.sku, wanted)
    return Admitted(units.sku, units.pool, units.gpus, units.decision, image)


def admit_units(catalogue: Catalogue, wanted: Wanted) -> AdmittedUnits:
    """As `admit`, without an image."""
    sku = _sku_of(catalogue, wanted.sku)
    if not sku.active:
        raise _unknown(wanted.sku)
    if wanted.gpus not in sku.allowed_counts:
        counts = sorted(sku.allowed_counts)
        raise SkuUnavailable(
            f"gpus is {wanted.gpus}; {sku.name} allows {', '.join(map(str, counts))}",
            reason=UnavailableReason.COUNT_NOT_ALLOWED,
            allowed_counts=counts,
        )
    return _units_of(catalogue, sku, wanted)


def admit_sold_units(catalogue: Catalogue, wanted: Wanted) -> AdmittedUnits:
    """As `admit_units`, for units of a reservation: a SKU that was retired since is admitted."""
    return _units_of(catalogue, _sku_of(catalogue, wanted.sku), wanted)


def admit_use(
    catalogue: Catalogue, sku_name: str, held: HeldUnits, image: str | None, *, has_user_data: bool, sold: bool
) -> AdmittedUse:
    """Resolve the use of held units as a SKU. `sold`: they were held as that SKU, which may be retired since.

    Raises `SkuUnavailable` (`not_reserved` if the units are not of that SKU), `ImageUnavailable`.
    """
    wanted = Wanted(sku_name, held.gpus, held.region, image, has_user_data)
    sku = _sku_of(catalogue, sku_name) if sold else admit_units(catalogue, wanted).sku
    found = _image_of(catalogue, sku, wanted)
    fits = (held.gpu_model, held.shape) == (sku.gpu_model, sku.shape)
    whole = sku.shape != Shape.BAREMETAL or held.gpus == held.slot_count
    if not (fits and whole):
        raise SkuUnavailable(
            f"the reserved units are no {sku_name}; name the SKU that they were reserved as",
            reason=UnavailableReason.NOT_RESERVED,
        )
    return AdmittedUse(sku, found)


def _sku_of(catalogue: Catalogue, name: str) -> Sku:
    sku = catalogue.skus.get(name)
    if sku is None:
        raise _unknown(name)
    return sku


def _unknown(name: str) -> SkuUnavailable:
    return SkuUnavailable(
        f"there is no SKU {name!r}; GET /api/v1/skus lists them", reason=UnavailableReason.UNKNOWN_SKU
    )


def _units_of(catalogue: Catalogue, sku: Sku, wanted: Wanted) -> AdmittedUnits:
    pool = _pool_of(catalogue, sku, wanted.region)
    decision = decide(sku.shape, wanted.gpus, pool.layouts)
    if not decision.choices:
        largest = max(layout.slot_count for layout in pool.layouts)
        raise SkuUnavailable(
            f"no node of {sku.name} in {wanted.region} has {wanted.gpus} GPUs; the largest has {largest}",
            reason=UnavailableReason.NO_NODE_LARGE_ENOUGH,
            largest=largest,
        )
    return AdmittedUnits(sku, pool, wanted.gpus, decision)


def _pool_of(catalogue: Catalogue, sku: Sku, region: str) -> Pool:
    pool = catalogue.pools.get((region, sku.gpu_model, sku.shape))
    if pool is not None and pool.layouts:
        return pool
    other = Shape.GPU_SLICE if sku.shape == Shape.BAREMETAL else Shape.BAREMETAL
    elsewhere = catalogue.pools.get((region, sku.gpu_model, other))
    if elsewhere is not None and elsewhere.layouts:
        raise SkuUnavailable(
            f"{region} offers {sku.gpu_model} only as {other.value}; use a SKU of that shape or another region",
            reason=UnavailableReason.WRONG_SHAPE,
        )
    raise SkuUnavailable(
        f"{sku.name} is not offered in {region}; GET /api/v1/availability lists where it is",
        reason=UnavailableReason.NONE_IN_REGION,
    )


def _image_of(catalogue: Catalogue, sku: Sku, wanted: Wanted) -> Image:
    name = wanted.image if wanted.image is not None else sku.default_image
    if name is None:
        raise ImageUnavailable(f"{sku.name} has no default image; set image")
    image = catalogue.images.get(name)
    if image is None or not image.offered(sku.shape, sku.gpu_model, wanted.region):
        raise ImageUnavailable(
            f"image {name!r} is not offered for {sku.name} in {wanted.region}; GET /api/v1/images lists the images"
        )
    if wanted.has_user_data and not image.cloud_init:
        raise ImageUnavailable(
            f"image {name!r} has no cloud-init, so nothing would run the user data; leave user_data out or name another image"
        )
    return image
