"""SQL that deletes operations after their retention."""

from __future__ import annotations

from orchestrator.database.transactions import Transaction

# The array keeps the planner from a join: a few rows are looked up, whatever number it estimates.
_RETIRE_OPERATIONS = """
with picked as (
    select ctid from operations where retire_after < (select clock_timestamp())
    order by retire_after limit :limit for update skip locked
), gone as (
    delete from operations where ctid = any (array(select ctid from picked)) returning 1
)
select count(*) from gone
"""


async def delete_retired_operations(tx: Transaction, limit: int) -> int:
    """Delete at most `limit` operations past their retention, the oldest first; return how many."""
    count: int = (await tx.execute(_RETIRE_OPERATIONS, {"limit": limit})).scalar_one()
    return count
