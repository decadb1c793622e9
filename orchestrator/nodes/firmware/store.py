"""SQL of the lists of accepted firmware."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.firmware.rules import Accepted

_PUT = """
insert into firmware_lists as l (vendor, product, components, changed_by)
values (:vendor, :product, cast(:components as jsonb), :by)
on conflict (vendor, product) do update set components = excluded.components, changed_by = excluded.changed_by,
    changed_at = clock_timestamp()
returning id, vendor, product, components, changed_at, changed_by
"""
_LIST = """
select id, vendor, product, components, changed_at, changed_by from firmware_lists where id > :after order by id limit :limit
"""
_DELETE = "delete from firmware_lists where id = :id returning vendor, product"
_OF_MODEL = "select components from firmware_lists where vendor = :vendor and product = :product"


@dataclass(frozen=True, slots=True)
class FirmwareList:
    """The accepted versions of a model of machines; `components`: each with `component`, `model` and `versions`."""

    id: UUID
    vendor: str
    product: str
    components: list[JsonObject]
    changed_at: datetime
    changed_by: str


async def put_list(
    tx: Transaction, vendor: str, product: str, components: Sequence[JsonMapping], by: str
) -> FirmwareList:
    """The list of this model is this one, whatever it was."""
    values = {"vendor": vendor, "product": product, "components": json.dumps(list(components)), "by": by}
    return FirmwareList(**(await tx.execute(_PUT, values)).one()._mapping)


async def delete_list(tx: Transaction, list_id: UUID) -> tuple[str, str] | None:
    """Delete a list; its vendor and product, None if there is none."""
    row = (await tx.execute(_DELETE, {"id": list_id})).first()
    return None if row is None else (row.vendor, row.product)


async def list_lists(reading: Reading, after: UUID, limit: int) -> list[FirmwareList]:
    """Up to `limit` lists after this id."""
    rows = await reading.execute(_LIST, {"after": after, "limit": limit})
    return [FirmwareList(**row._mapping) for row in rows]


async def accepted_of(reading: Reading, vendor: str | None, product: str | None) -> list[Accepted] | None:
    """What the list of this model accepts; None if it has none."""
    if vendor is None or product is None:
        return None
    row = (await reading.execute(_OF_MODEL, {"vendor": vendor, "product": product})).first()
    if row is None:
        return None
    return [Accepted(one["component"], one["model"], frozenset(one["versions"])) for one in row.components]
