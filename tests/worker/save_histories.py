"""Makes the histories that `test_replay.py` replays: `python -m tests.worker.save_histories`.

Run it after a deliberate, patched change of a workflow. It numbers the new files after the old, which stay: runs of both exist.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from temporalio.client import Client

import migrations
from berth.local.servers import LocalNats, LocalPostgres, LocalTemporal, free_port, new_password
from migrations.roles import Role
from node_agent.protocol import FailureCode, ResultReport
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.states import Verb
from tests.allocations.driving import (
    NOT_WIPED,
    TENANT,
    allocation_of,
    completed,
    failed,
    operation,
    release,
    run_with,
    task_of,
)
from tests.allocations.seeding import create_allocation, seed
from tests.support.waiting import wait_for
from tests.support.worker_processes import Processes, answer_well, answer_what_is_queued, play_nodes

HISTORIES = Path(__file__).parent / "histories"
PAYLOAD_KEY = bytes(range(32))
"""Under which the histories are encrypted; the first ones were recorded without encryption."""
ANONYMOUS = {"identity": "worker", "buildId": "build", "binaryChecksum": "build", "workerInstanceKey": "instance"}

MACHINE = re.compile(r"\d+@\S+")
"""How Temporal names a process: its number and its host."""


def main() -> None:
    """Run each story once over new servers and write the histories of its workflows."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        postgres = LocalPostgres(directory / "postgres", free_port(), new_password(), {"fsync": "off"})
        nats = LocalNats(directory / "nats", free_port(), free_port())
        temporal = LocalTemporal(directory / "temporal", free_port(), free_port())
        servers = (postgres, nats, temporal)
        try:
            for server in servers:
                server.start()
            postgres.make_roles(dict.fromkeys(Role, postgres.password))
            migrations.upgrade(postgres.url())
            processes = Processes(postgres.url(), nats, temporal.address, directory)
            processes.payload_keys.write_bytes(base64.b64encode(PAYLOAD_KEY) + b"\n")
            try:
                _live(processes)
            finally:
                processes.stop()
            asyncio.run(_save(temporal.address))
        finally:
            for server in servers:
                server.stop()


def _live(processes: Processes) -> None:
    """One that comes and goes, with a release attempt that fails; one that fails, with a lease conflict first."""
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    processes.start_worker()
    seen: Counter[str] = Counter()

    def once_unproven(task: dict[str, Any]) -> ResultReport | None:
        seen[task["type"]] += 1
        unproven = task["type"] == "slice.vm_release" and seen[task["type"]] == 1
        return completed(task, NOT_WIPED) if unproven else answer_well(task)

    def failing(task: dict[str, Any]) -> ResultReport | None:
        if "provision" not in task["type"]:
            return answer_well(task)
        code = FailureCode.LEASE_CONFLICT if task["attempt"] == 1 else FailureCode.IMAGE_DOWNLOAD_FAILED
        return failed(task, code)

    comes_and_goes = create_allocation(url, seeded)
    play_nodes(url, {comes_and_goes: "active"})
    run_with(
        url, lambda context: order_verb(context, operation(seeded), TENANT, seeded.tenant_id, comes_and_goes, Verb.STOP)
    )
    wait_for(lambda: task_of(url, comes_and_goes)["type"] == "allocation.stop", "the task of the verb")
    answer_what_is_queued(url)
    wait_for(lambda: allocation_of(url, comes_and_goes)["guest_verb"] is None, "the end of the verb")
    run_with(url, lambda context: release(context, seeded, comes_and_goes))
    play_nodes(url, {comes_and_goes: "released"}, once_unproven)
    play_nodes(url, {create_allocation(url, seeded): "failed"}, failing)


async def _save(address: str) -> None:
    HISTORIES.mkdir(exist_ok=True)
    client = await Client.connect(address)
    kinds = Counter(path.stem.partition("-")[0] for path in HISTORIES.glob("*.json"))
    found = [run async for run in client.list_workflows()]
    for run in sorted(found, key=lambda run: run.start_time):
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        kinds[run.workflow_type] += 1
        document = _without_names(json.loads(history.to_json()))
        path = HISTORIES / f"{run.workflow_type}-{kinds[run.workflow_type]}.json"
        path.write_text(json.dumps({"workflow_id": run.id, "history": document}, indent=1) + "\n")


def _without_names(value: Any) -> Any:
    """The same without names of machines and processes."""
    if isinstance(value, dict):
        return {key: ANONYMOUS.get(key) or _without_names(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_names(inner) for inner in value]
    return "worker" if isinstance(value, str) and MACHINE.fullmatch(value) else value


if __name__ == "__main__":
    main()
