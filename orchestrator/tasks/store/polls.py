"""Whether nodes that poll count, and which tasks they have, for many nodes in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator.database.calls import FunctionCall

# Nested loops by primary keys: the planner takes arrays for short.
_STANDING = """
select jsonb_agg(jsonb_build_array(
    n.epoch, n.identity_conflict_at is not null,
    (select jsonb_agg(t.id) from node_tasks t
     where t.node_id = n.id and t.node_epoch = n.epoch and t.state = 'dispatched' and t.deploy_epoch is null
       and t.expires_at > clock_timestamp())
) order by w.number)
from unnest(%(nodes)s::uuid[], %(serials)s::text[]) with ordinality w (node_id, serial, number)
left join (node_certificates c join nodes n on n.id = c.node_id and n.epoch = c.node_epoch)
    on c.serial = w.serial and c.node_id = w.node_id and c.revoked_at is null and c.not_after > clock_timestamp()
    and n.state <> 'retired'
"""


@dataclass(frozen=True, slots=True)
class Polling:
    """A node whose certificate counts. `dispatched`: its tasks that are dispatched and not finished."""

    epoch: int
    in_conflict: bool
    dispatched: frozenset[UUID]


async def read_polling(call: FunctionCall, nodes: Sequence[tuple[UUID, str]]) -> list[Polling | None]:
    """For each (node, certificate serial) in turn: None if its certificate does not count."""
    names = {"nodes": [node for node, _ in nodes], "serials": [serial for _, serial in nodes]}
    return [_polling(*row) for row in await call.value(_STANDING, names)]


def _polling(epoch: int | None, in_conflict: bool, dispatched: list[Any] | None) -> Polling | None:
    if epoch is None:
        return None
    return Polling(epoch, in_conflict, frozenset(UUID(task) for task in dispatched or ()))
