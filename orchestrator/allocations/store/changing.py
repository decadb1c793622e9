"""SQL that changes what a tenant calls an allocation: its name and labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from orchestrator.database.transactions import Transaction

_CHANGE = """
update allocations set name = coalesce(cast(:name as text), name), labels = coalesce(cast(:labels as jsonb), labels),
                       row_version = row_version + 1
where id = :id and (name is distinct from coalesce(cast(:name as text), name)
                    or labels <> coalesce(cast(:labels as jsonb), labels))
returning array_remove(array[
    case when old.name is distinct from new.name then 'name' end,
    case when old.labels <> new.labels then 'labels' end
], null) as changed
"""


async def change_names(
    tx: Transaction, allocation_id: UUID, name: str | None, labels: Mapping[str, str] | None
) -> list[str]:
    """Change name and labels of a locked allocation; None leaves a member as it is. Return the members that changed.

    If none differs, nothing is written and the row version stays.
    """
    values = {"id": allocation_id, "name": name, "labels": None if labels is None else json.dumps(dict(labels))}
    changed: list[str] | None = (await tx.execute(_CHANGE, values)).scalar_one_or_none()
    return changed or []
