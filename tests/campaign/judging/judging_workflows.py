"""What Temporal remembers: every event that asks for a workflow has started one, and none ran again once completed."""

from __future__ import annotations

from collections import defaultdict

from temporalio.client import Client, WorkflowExecutionStatus

from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation

IDS = {
    "provisioning.requested": "provisioning-{}",
    "provisioning.releasing.requested": "releasing-{}",
}
"""The id of the workflow that each type of event starts."""


async def judge_workflows(temporal_address: str, history: History) -> list[Violation]:
    """Every check on workflows. Call it when the worker has taken all events, with a Temporal that forgot nothing."""
    client = await Client.connect(temporal_address)
    runs: dict[str, list[WorkflowExecutionStatus | None]] = defaultdict(list)
    async for run in client.list_workflows():
        runs[run.id].append(run.status)
    return check_runs(history, runs)


def check_runs(history: History, runs: dict[str, list[WorkflowExecutionStatus | None]]) -> list[Violation]:
    """The checks, on the states of each id's runs."""
    found = []
    for event in history.events().values():
        wanted = IDS.get(event.type)
        if wanted is None:
            continue
        workflow_id = wanted.format(event.event_id)
        completed = runs.get(workflow_id, []).count(WorkflowExecutionStatus.COMPLETED)
        if workflow_id not in runs:
            found.append(Violation("event led on", f"{event.type} (version {event.version}) started no workflow"))
        if completed > 1:
            found.append(Violation("one workflow", f"{workflow_id} ran {completed} times to its end"))
    return found
