"""SQL of the tasks of maintenance windows, as far as the windows are concerned. Each change holds the locks of the nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.maintenance.states import TaskKind
from orchestrator.maintenance.store import Target
from orchestrator.maintenance.window_tasks import NodeBmc, NodeOfWindow, WantedTask


@dataclass(frozen=True, slots=True)
class EndedWaiting:
    """The task of a window on a node that does not run any more."""

    node_id: UUID
    kind: TaskKind
    plugin: str | None


_NODES = """
select n.id as node_id, u.units = int8multirange(int8range(n.unit_base, n.unit_base + n.slot_count)) as whole,
       coalesce(n.agent_features, '{}') as features, n.agent_version, n.slot_count, coalesce(t.approved, t.found) as topology,
       b.node_id is not null as has_bmc,
       case when not coalesce((b.inventory ->> 'cut')::boolean, true) then b.inventory -> 'firmware' end as entries,
       l.components
from jsonb_to_recordset(cast(:targets as jsonb)) as u(node_id uuid, units int8multirange)
join nodes n on n.id = u.node_id left join node_topologies t on t.node_id = n.id
left join node_bmcs b on b.node_id = n.id left join node_machines m on m.node_id = n.id
left join firmware_lists l on l.vendor = m.report #>> '{topology,firmware,vendor}'
                          and l.product = m.report #>> '{topology,firmware,product}'
order by n.id
"""
_INSERT = """
insert into maintenance_tasks (window_id, node_id, kind, plugin, firmware, seconds_max, begins_at, waits_for, waits_since,
                               waits_until)
select w.id, u.node_id, :kind, :plugin, cast(:firmware as jsonb), :seconds_max, w.starts_at, 'units', clock_timestamp(), w.ends_at
from maintenance_windows w join maintenance_units u on u.window_id = w.id where w.id = :id
"""
_RUNNING = "select node_id from maintenance_tasks where window_id = :id and state = 'running' order by node_id limit 1"
_END_WAITING = """
update maintenance_tasks set state = 'not_run', failure = :failure, ended_at = clock_timestamp(), waits_for = null,
    waits_since = null, waits_until = null
where window_id = :id and state = 'waiting' returning node_id, kind, plugin
"""


async def read_nodes(reading: Reading, targets: Sequence[Target]) -> list[NodeOfWindow]:
    """What decides about a task on the nodes of these units."""
    written = json.dumps([{"node_id": str(target.node_id), "units": target.units} for target in targets])
    return [
        NodeOfWindow(
            row.node_id, row.whole, row.features, row.agent_version, row.slot_count, row.topology,
            _bmc(row.entries, row.components) if row.has_bmc else None,
        )
        for row in await reading.execute(_NODES, {"targets": written})
    ]  # fmt: skip


def _bmc(entries: list[JsonObject] | None, components: list[JsonObject] | None) -> NodeBmc:
    names = None if entries is None else {str(one["id"]): str(one["name"]) for one in entries}
    listed = [(one["model"], one["versions"]) for one in components or () if one["component"] == "inventory"]
    return NodeBmc(names, listed)


async def insert_tasks(tx: Transaction, window_id: UUID, wanted: WantedTask) -> None:
    """Write the task of a new window on each of its nodes."""
    values = {
        "id": window_id, "kind": wanted.kind.value, "plugin": wanted.plugin, "seconds_max": wanted.seconds_max,
        "firmware": None if wanted.firmware is None else wanted.firmware.model_dump_json(),
    }  # fmt: skip
    await tx.execute(_INSERT, values)


async def find_running(tx: Transaction, window_id: UUID) -> UUID | None:
    """A node on which the task of this locked window runs: its result is not known."""
    found: UUID | None = (await tx.execute(_RUNNING, {"id": window_id})).scalar()
    return found


async def end_waiting(tx: Transaction, window_id: UUID, failure: str) -> list[EndedWaiting]:
    """The tasks of a locked window that did not begin do not run any more."""
    rows = await tx.execute(_END_WAITING, {"id": window_id, "failure": failure})
    return [EndedWaiting(row.node_id, TaskKind(row.kind), row.plugin) for row in rows]
