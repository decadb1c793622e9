"""Bugs planted into the orchestrator and, as it runs the same commands, the worker."""

from __future__ import annotations

import dataclasses
import itertools
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from tests.testbuild.planting import replace, rewrite

CLOCK_GAINS = timedelta(minutes=1)


def judge_by_own_clock() -> None:
    """Deadlines are judged by the process's own clock, which gains a minute with every look."""
    from orchestrator.allocations import subject as locked_allocations
    from orchestrator.allocations.store import advance as allocations
    from orchestrator.reservations.store import reservations

    genuine, genuine_reservation = locked_allocations.Subject, reservations.ReservationSubject
    looks = itertools.count()

    def subject(**values: Any) -> Any:
        return genuine(**{**values, "clock": datetime.now(UTC) + CLOCK_GAINS * next(looks)})

    def reservation(**values: Any) -> Any:
        return genuine_reservation(**{**values, "clock": datetime.now(UTC) + CLOCK_GAINS * next(looks)})

    replace(allocations, "Subject", subject)
    replace(reservations, "ReservationSubject", reservation)


def leave_nodes_unlocked() -> None:
    """Commands on an allocation do not lock its node."""
    from orchestrator.allocations.store import advance as allocations

    rewrite(allocations, "_LOCK_NODE", "for no key update", "")


def forget_that_claims_close_once() -> None:
    """The code's half of a claim that closes with its right: what follows does not mind that it is closed."""
    from orchestrator.allocations.store import claims

    for name, text in list(vars(claims).items()):
        if isinstance(text, str) and "and closed_at is null" in text:
            rewrite(claims, name, "and closed_at is null", "")


def take_every_result() -> None:
    """A node's result counts whatever its fence and whatever became of its task."""
    from orchestrator.allocations.commands import task_results as accept_task_result
    from orchestrator.tasks.store import results as task_results

    replace(accept_task_result, "_counts", lambda *_: True)
    rewrite(task_results, "_FINISH", "where t.id = :id and t.state in ('queued', 'dispatched')", "where t.id = :id")


async def conclude_apart(context: Any, operation: Any, done: Any) -> Any:
    """Store the response of what has committed in another transaction; the answer, or that of an earlier attempt."""
    from orchestrator.operations import execution
    from orchestrator.operations.store import operations

    body = "" if done.body is None else json.dumps(done.body, default=execution.json_value)
    async with context.database.transaction() as tx:
        first = await operations.reserve_key(tx, operation)
        if first is not None:
            return first
        return await operations.conclude(tx, operation, status=done.status, code="ok", body=body, subject=done.subject)


def commit_key_apart() -> None:
    """The key is stored in a separate transaction, after that of the effect."""
    from orchestrator.operations import execution
    from orchestrator.operations.store import operations

    read = "select fingerprint, status, body from operations where scope = :scope and key = :key"

    async def attempt(context: Any, operation: Any, effect: Any, *_: Any) -> Any:
        async with context.database.transaction() as tx:
            stored = (await tx.execute(read, {"scope": operation.scope, "key": operation.key})).first()
            if stored is not None:
                return operations.stored_answer(operation, bytes(stored.fingerprint), stored.status, stored.body)
            done = await effect(tx)
        return await conclude_apart(context, operation, done)

    replace(execution, "_attempt", attempt)


def ignore_content() -> None:
    """An operation's fingerprint is that of its path, whatever its body says."""
    from orchestrator.http import operation_keys

    replace(operation_keys, "json", SimpleNamespace(dumps=lambda *_, **__: ""))


def believe_that_ended_is_done() -> None:
    """A task that is said to have ended is taken for done; its row is not asked how it ended."""
    from orchestrator.allocations.commands import provision as finish_provisioning
    from orchestrator.tasks.states import TaskState

    genuine = vars(finish_provisioning)["lock_allocation"]
    unknown = {"connection": {"host": "127.0.0.1", "port": 22, "user": "tenant", "host_key": "unknown"}}

    async def lock_allocation(*arguments: Any) -> Any:
        subject = await genuine(*arguments)
        if subject is None or subject.task is None or subject.task.live:
            return subject
        result = subject.task.result or unknown
        return dataclasses.replace(
            subject, task=dataclasses.replace(subject.task, state=TaskState.COMPLETED, result=result)
        )

    replace(finish_provisioning, "lock_allocation", lock_allocation)


def forget_tombstones() -> None:
    """A status query of an unused key says so, and nothing keeps a late request from running."""
    from orchestrator.operations.store import questions as asking

    async def lift(tx: Any, scope: Any, key: str, *_: Any) -> None:
        await asking.lift_tombstone(tx, scope, key)

    replace(asking, "tell_of_tombstone", lift)


def take_every_window_for_begun() -> None:
    """A reservation may be used before its window begins."""
    from orchestrator.reservations.store import reservations

    replace(reservations.ReservationSubject, "begun", property(lambda _: True))
