"""Machines as stories of nodes: a machine has no agent with a journal, so its deploy systems and runs say what was made there."""

from __future__ import annotations

from uuid import NAMESPACE_OID, UUID, uuid5

from node_agent.protocol import TaskType
from tests.campaign.judging.judging_nodes import Ended, NodeStory
from tests.campaign.machines.records import MachineHistory


def stories_of(machines: MachineHistory) -> dict[str, NodeStory]:
    """The story of each machine: a deployment made its allocation, a completed wipe removed the one that it was for."""
    found = {name: NodeStory() for name in machines.seen}
    for name, lines in machines.seen.items():
        for number, line in enumerate(lines):
            if line["what"] == "work_done" and line["kind"] == "deploy":
                made = Ended(TaskType.PROVISION_USER, UUID(line["allocation"]), line["epoch"])
                _add(found[name], uuid5(NAMESPACE_OID, f"{name} {number}"), made)
    for run in machines.runs.values():
        if run.kind == "wipe" and run.outcome == "completed" and run.allocation_id is not None:
            _add(found[run.machine], run.id, Ended(TaskType.DEPROVISION_USER, run.allocation_id, 0))
    return found


def _add(story: NodeStory, task_id: UUID, ended: Ended) -> None:
    story.ended[task_id] = ended
    story.completed.add(task_id)
