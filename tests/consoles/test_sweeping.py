"""Sessions whose process is gone are ended by the sweeper, ended ones are forgotten, and a crash leaves nothing that waits."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from node_agent.protocol import FailureCode
from orchestrator.consoles.commands import end_lost_session, issue_task
from orchestrator.operations.execution import Context
from tests.allocations.driving import failed, report, run_with
from tests.consoles.conftest import BOUNDS
from tests.consoles.stage import ConsoleStage, console_stage
from tests.consoles.talking import attached, ending, message
from tests.databases import copied_database
from tests.support.waiting import wait_for
from tests.verifying import broken_promises
from worker.consoles.sweeping import issue_consoles, sweep_consoles


@pytest.fixture
def doomed(postgres_server: LocalPostgres, migrated_template: str, tmp_path: object) -> Iterator[ConsoleStage]:
    """A process that the test kills."""
    with copied_database(postgres_server, migrated_template) as url, console_stage(url, tmp_path, **BOUNDS) as running:  # type: ignore[arg-type]
        yield running


def test_the_sessions_of_a_killed_process_are_ended(doomed: ConsoleStage) -> None:
    allocation = doomed.active()
    with attached(doomed.api, doomed.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        agent = doomed.joined(session_id)
        assert message(socket)["type"] == "begin"
        assert doomed.process.process is not None
        os.killpg(doomed.process.process.pid, signal.SIGKILL)
        assert ending(socket)[0] == 1006
        assert agent.receive() is None
    (row,) = doomed.sessions(allocation)
    assert row["ended_at"] is None

    async def sweep(context: Context) -> None:
        await sweep_consoles(context, 3_600.0, 3_600.0, 10)
        assert doomed.sessions(allocation)[0]["ended_at"] is None, "it was seen not long ago"
        await sweep_consoles(context, 0.0, 3_600.0, 10)
        assert await end_lost_session(context, uuid.UUID(session_id), 0.0) is None, "it ends once"

    run_with(doomed.url, sweep)
    assert doomed.ended(session_id)["reason"] == "process_lost"
    (task,) = doomed.rows("select * from node_tasks where id = %s", row["task_id"])
    assert task["state"] == "superseded"
    ends = doomed.rows("select detail, principal_kind from audit_pending where action = 'allocation.console_end'")
    assert [(one["detail"]["reason"], one["principal_kind"]) for one in ends] == [("process_lost", "worker")]
    assert broken_promises(doomed.url) == {}


def test_a_session_that_its_process_never_ended_ends_by_its_deadline(stage: ConsoleStage) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        session_id = message(socket)["session_id"]
        stage.execute(
            "update console_sessions set waits_until = clock_timestamp() - interval '1 hour' where id = %s",
            uuid.UUID(session_id),
        )

        async def sweep(context: Context) -> None:
            await issue_consoles(context, 15.0, 10)
            assert not stage.rows("select from node_tasks where type = 'console.attach'"), "it is too late for a task"
            await sweep_consoles(context, 3_600.0, 3_600.0, 10)

        run_with(stage.url, sweep)
        assert stage.ended(session_id)["reason"] == "agent_absent"
        assert ending(socket)[1] == "process_lost", "the process finds that it has ended"


def test_old_sessions_are_forgotten_with_their_tasks(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        stage.joined(session_id)
        assert message(socket)["type"] == "begin"
    row = stage.ended(session_id)

    async def sweep(context: Context) -> None:
        assert not await sweep_consoles(context, 3_600.0, 3_600.0, 10)
        assert stage.sessions(allocation)
        await sweep_consoles(context, 3_600.0, 0.0, 10)

    run_with(stage.url, sweep)
    assert stage.sessions(allocation) == []
    assert stage.rows("select from node_tasks where id = %s", row["task_id"]) == []


def test_two_workers_sign_a_session_once(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = uuid.UUID(message(socket)["session_id"])

        async def sign(context: Context) -> list[bool]:
            return await asyncio.gather(*(issue_task(context, session_id, 15.0) for _ in range(4)))

        assert sorted(run_with(stage.url, sign)) == [False, False, False, True]


def test_the_late_report_of_an_agent_changes_nothing(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        stage.joined(session_id)
        assert message(socket)["type"] == "begin"
    row = stage.ended(session_id)
    (task,) = stage.rows("select * from node_tasks where id = %s", row["task_id"])

    async def late(context: Context) -> str | None:
        return (await report(context, task, failed(task, FailureCode.INTERRUPTED))).reason

    assert run_with(stage.url, late) == "superseded"
    assert stage.ended(session_id) == row


def test_a_process_that_stops_logs_it(doomed: ConsoleStage) -> None:
    with attached(doomed.api, doomed.key(), doomed.active()) as socket:
        session_id = message(socket)["session_id"]
        doomed.joined(session_id)
        assert message(socket)["type"] == "begin"
        doomed.process.terminate()
        assert ending(socket) == (1012, "stopping")
    assert doomed.ended(session_id)["reason"] == "stopping"
    wait_for(lambda: not doomed.process.runs(), "the end of the process")
