"""What the changes of an allocation left: its events and claims."""

from __future__ import annotations

from typing import Any

from tests.support.public_api import PublicApi


def updates_of(api: PublicApi, allocation_id: str) -> list[Any]:
    """Operation key and data of each `allocation.updated`, in order."""
    rows = api.database.execute(
        "select operation_key, payload from (select id, event_type, operation_key, payload from outbox union all"
        " select version, event_type, operation_key, payload from log) e"
        " where event_type = 'allocation.updated' and payload ->> 'allocation_id' = %s order by (payload ->> 'row_version')::int",
        (allocation_id,),
    )
    return rows.fetchall()


def claim_of(api: PublicApi, allocation_id: str) -> Any:
    """The rows of all claims that it has or had."""
    return api.database.execute("select * from claims where owner_id = %s", (allocation_id,)).fetchall()
