"""Decides from the catalogue alone whether a request could ever be placed, and where to look. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.errors import ImageUnavailable, SkuUnavailable, UnavailableReason
from orchestrator.domain.states import Shape
from orchestrator.placement.inventory import Catalogue, Image, Pool, Sku
from orchestrator.placement.ranking import Decision, decide


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a tenant asks for."""

    sku: str
    gpus: int
    region: str
    image: str | None


@dataclass(frozen=True, slots=True)
class AdmittedUnits:
    """Units that some node could give: what they are, and the order in which to look."""

    sku: Sku
    pool: Pool
    gpus: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Admitted(AdmittedUnits):
    """A request that some node could serve."""

    image: Image


def admit(catalogue: Catalogue, wanted: Wanted) -> Admitted:
    """The request resolved, or `SkuUnavailable` / `ImageUnavailable` with a reason that a person can act on."""
    units = admit_units(catalogue, wanted)
    image = _image_of(catalogue, units.sku, wanted)
    return Admitted(units.sku, units.pool, units.gpus, units.decision, image)


def admit_units(catalogue: Catalogue, wanted: Wanted) -> AdmittedUnits:
    """As `admit`, but for units alone: which image is booted on them is not asked."""
    sku = catalogue.skus.get(wanted.sku)
    if sku is None or not sku.active:
        raise SkuUnavailable(f"there is no SKU {wanted.sku!r}", reason=UnavailableReason.UNKNOWN_SKU)
    if wanted.gpus not in sku.allowed_counts:
        counts = sorted(sku.allowed_counts)
        raise SkuUnavailable(
            f"{sku.name} comes with {', '.join(map(str, counts))} GPUs, not {wanted.gpus}",
            reason=UnavailableReason.COUNT_NOT_ALLOWED,
            allowed_counts=counts,
        )
    pool = _pool_of(catalogue, sku, wanted.region)
    decision = decide(sku.shape, wanted.gpus, pool.layouts)
    if not decision.choices:
        largest = max(layout.slot_count for layout in pool.layouts)
        raise SkuUnavailable(
            f"no node of {sku.name} in {wanted.region} serves {wanted.gpus} GPUs; the largest has {largest}",
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
            f"{region} has {sku.gpu_model} only as {other.value}", reason=UnavailableReason.WRONG_SHAPE
        )
    raise SkuUnavailable(f"{sku.name} is not offered in {region}", reason=UnavailableReason.NONE_IN_REGION)


def _image_of(catalogue: Catalogue, sku: Sku, wanted: Wanted) -> Image:
    name = wanted.image if wanted.image is not None else sku.default_image
    if name is None:
        raise ImageUnavailable(f"{sku.name} has no default image; name one")
    image = catalogue.images.get(name)
    if image is None or not image.offered(sku.shape, sku.gpu_model, wanted.region):
        raise ImageUnavailable(f"image {name!r} is not offered for {sku.name} in {wanted.region}")
    return image
