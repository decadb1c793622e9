"""SQL for timeline entries besides transitions: notes and progress, both bounded."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import orjson

from node_agent.protocol import Phase
from orchestrator.database.transactions import Transaction
from orchestrator.tenants.principals import Actor

PROGRESS_PER_TASK_MAX = 64

_NOTE = """
insert into allocation_timeline (allocation_id, kind, code, detail, actor_kind, actor_id, fence)
values (:allocation_id, 'note', :code, :detail, :actor_kind, :actor_id, :fence)
"""
_NOTE_ONCE = """
insert into allocation_timeline (allocation_id, kind, code, detail, actor_kind, actor_id, fence)
select :allocation_id, 'note', :code, :detail, :actor_kind, :actor_id, :fence
where not exists (select from allocation_timeline
                  where allocation_id = :allocation_id and kind = 'note' and code = :code and fence = :fence)
"""
_PROGRESS = """
insert into allocation_timeline (allocation_id, at, kind, phase, detail, actor_kind, actor_id, fence)
select t.allocation_id, clock_timestamp() - make_interval(secs => p.seconds_ago), 'progress', p.phase, p.detail, 'node',
       cast(:node_id as text), t.fence
from node_tasks t
join allocations a on a.id = t.allocation_id
join claims c on c.id = a.claim_id and coalesce(c.inherited_fence, c.fence) = t.fence
cross join jsonb_to_recordset(cast(:phases as jsonb)) as p(place integer, phase text, detail text, seconds_ago float8)
where t.id = :task_id and t.node_id = cast(cast(:node_id as text) as uuid) and t.fence = :fence
  and t.state in ('queued', 'dispatched')
  and p.place + (select count(*) from allocation_timeline l
       where l.allocation_id = t.allocation_id and l.kind = 'progress' and l.fence = t.fence) <= :most
order by p.place
returning id
"""


async def note(
    tx: Transaction, allocation_id: UUID, actor: Actor, code: str, detail: str | None, fence: int, *, once: bool = False
) -> None:
    """Write a note; with `once`, only the first with its code and fence."""
    values = {"allocation_id": allocation_id, "code": code, "detail": detail, "fence": fence}
    statement = _NOTE_ONCE if once else _NOTE
    await tx.execute(statement, {**values, "actor_kind": actor.kind.value, "actor_id": actor.id})


async def record_progress_if_live(
    tx: Transaction, task_id: UUID, node_id: UUID, fence: int, phases: Sequence[Phase]
) -> bool:
    """Write phases of a running task of that node; False if the task is superseded or ended, or at the limit of phases."""
    listed = [
        {"place": place, "phase": one.phase, "detail": one.detail or None, "seconds_ago": one.seconds_ago}
        for place, one in enumerate(phases, start=1)
    ]
    values = {"task_id": task_id, "node_id": str(node_id), "fence": fence, "phases": orjson.dumps(listed).decode()}
    return (await tx.execute(_PROGRESS, {**values, "most": PROGRESS_PER_TASK_MAX})).first() is not None
