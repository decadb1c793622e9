"""Claims that are still open on a node, and what a person does about each."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.problems import NodeInUse

LISTED_MAX = 100

_OPEN = """
select count(*) over () as open, c.owner_kind, c.owner_id, coalesce(a.state, w.state, 'unknown') as state
from claims c left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id
     left join maintenance_windows w on c.owner_kind = 'maintenance' and w.id = c.owner_id
where c.node_id = :node_id and c.closed_at is null order by c.id limit :limit
"""
_STUCK = frozenset({"releasing", "release_failed", "failed"})
_CLEAN_UP = "if nothing of it is left on the node, force-cleanup it; else force-release it"
_MAINTENANCE = "cancel the maintenance window, or end it if it is active"
_RELEASE_FIRST = "force-release it, then force-cleanup it if the node does not come back"


def _next_step(owner_kind: str, state: str) -> str:
    if owner_kind == "maintenance":
        return _MAINTENANCE
    return _CLEAN_UP if state in _STUCK else _RELEASE_FIRST


async def require_no_open_claims(tx: Transaction, node_id: UUID) -> None:
    """Raise `NodeInUse` naming what still holds units of the node, which the caller has locked; at most 100 of them."""
    rows = (await tx.execute(_OPEN, {"node_id": node_id, "limit": LISTED_MAX})).all()
    if not rows:
        return
    claims = [
        {
            "owner_kind": row.owner_kind,
            "owner_id": str(row.owner_id),
            "state": row.state,
            "next_step": _next_step(row.owner_kind, row.state),
        }
        for row in rows
    ]
    raise NodeInUse(f"{rows[0].open} claims are open on the node; end each of them first", claims=claims)
