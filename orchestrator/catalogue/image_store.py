"""SQL for reading and deleting images.

A deleted image keeps its row until an operator makes the name again: a create that was admitted just before the deletion
still finds what its node must fetch.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from orchestrator.catalogue import tables
from orchestrator.catalogue.image_statement import STATED, ImageStatement, with_statement
from orchestrator.catalogue.refusals import ImageInUse
from orchestrator.catalogue.store import Image
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound


@dataclass(frozen=True, slots=True)
class OfferedImage:
    """An image that a create may name, without its URL, which only nodes and operators need."""

    name: str
    sha256: str
    shapes: list[str]
    gpu_models: list[str] | None
    regions: list[str] | None
    statement: ImageStatement


_IMAGES = tables.images.c
_THERE = _IMAGES.deleted_at.is_(None)
_OFFERED = (
    select(*(_IMAGES[name] for name in ("name", "sha256", "shapes", "gpu_models", "regions", *STATED)))
    .where(_THERE, _IMAGES.state == "active")
    .order_by(_IMAGES.name)
)
_ALL = select(
    *(_IMAGES[name] for name in ("name", "url", "sha256", "shapes", "gpu_models", "regions", "state", *STATED))
).where(_THERE)
_LOCK = "select from images where name = :name and deleted_at is null for update"
_COUNT_USERS = """
select
    (select count(*) from claims c join allocations a on a.id = c.owner_id
     where c.closed_at is null and c.node_id is not null and c.owner_kind = 'allocation' and a.image = :name) as allocations,
    (select count(*) from node_tasks t join allocations a on a.id = t.allocation_id
     where t.state in ('queued', 'dispatched') and a.image = :name) as tasks,
    (select count(distinct r.id) from claims c join reservations r on r.id = c.owner_id
     where c.closed_at is null and c.node_id is not null and c.owner_kind = 'reservation'
       and r.template ->> 'image' = :name) as reservations,
    (select count(*) from skus where default_image = :name) as skus
"""
_DELETE = """
update images set state = 'retired', deleted_at = clock_timestamp(), row_version = row_version + 1 where name = :name
"""


async def list_offered_images(reading: Reading, after: str, limit: int) -> list[OfferedImage]:
    """Up to `limit` images that a create may name, by name."""
    rows = await reading.execute(_OFFERED.where(_IMAGES.name > after).limit(limit))
    return [OfferedImage(**with_statement(row._mapping)) for row in rows]


async def list_images(reading: Reading, after: str, limit: int) -> list[Image]:
    """Up to `limit` images by name, retired ones too."""
    rows = await reading.execute(_ALL.where(_IMAGES.name > after).order_by(_IMAGES.name).limit(limit))
    return [Image(**with_statement(row._mapping)) for row in rows]


async def read_image(reading: Reading, name: str) -> Image:
    """One image, also a retired one. Raises `NotFound`."""
    row = (await reading.execute(_ALL.where(_IMAGES.name == name))).first()
    if row is None:
        raise NotFound(f"there is no image {name!r}")
    return Image(**with_statement(row._mapping))


async def delete_unused_image(tx: Transaction, name: str) -> None:
    """Delete an image that nothing needs.

    Needed by: allocations whose units are not free again, unfinished tasks, live reservations that start with it, and SKUs
    with this default. Raises `NotFound`, and `ImageInUse` with the counts.
    """
    if (await tx.execute(_LOCK, {"name": name})).first() is None:
        raise NotFound(f"there is no image {name!r}")
    users = dict((await tx.execute(_COUNT_USERS, {"name": name})).one()._mapping)
    if any(users.values()):
        raise ImageInUse.by(name, users)
    await tx.execute(_DELETE, {"name": name})
