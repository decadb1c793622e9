"""SQL of the virtual devices that a node reported of an allocation's guest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.database.transactions import Reading


@dataclass(frozen=True, slots=True)
class StoredDevices:
    """What the newest task that started the guest reported; `reported` and `left_out` are the agent's words, None: absent."""

    task_id: UUID
    read_at: datetime
    reported: Any
    left_out: Any


# The backward scan of the index by allocation ends at the first row: `stop` is the one other task of an active allocation.
_READ = """
select t.id, t.finished_at, t.result -> 'evidence' -> 'guest_devices' as reported,
       t.result -> 'evidence' -> 'left_out' as left_out
from node_tasks t
where t.allocation_id = :id and t.state = 'completed'
  and t.type in ('slice.vm_provision', 'allocation.provision_user', 'allocation.rebuild', 'allocation.start',
                 'allocation.reboot')
order by t.queued_at desc limit 1
"""


async def read_devices(reading: Reading, allocation_id: UUID) -> StoredDevices | None:
    """What was reported when the guest was started last; None if no task has started it."""
    row = (await reading.execute(_READ, {"id": allocation_id})).first()
    return None if row is None else StoredDevices(row.id, row.finished_at, row.reported, row.left_out)
