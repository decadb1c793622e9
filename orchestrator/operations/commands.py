"""What became of an operation, answered so that it cannot become anything else (P12; DESIGN §6).

An operation that was not begun is fenced off for the retention window: a request that was on its way finds a tombstone
and never runs. So a client that lost an answer learns what to do, whatever the network still carries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonMapping
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import TRIES_MAX, Context, transact
from orchestrator.operations.states import OperationState, is_past_horizon, leeway_of
from orchestrator.operations.store import questions as asking
from orchestrator.operations.store.questions import Known
from orchestrator.operations.store.retirement import delete_retired_operations
from orchestrator.problems import Invalid, OperationInProgress


@dataclass(frozen=True, slots=True)
class Question:
    """A key and its scope. `since`: when the client first tried, by its clock; None if it does not say.

    `caller`: for the audit row.
    """

    scope: UUID
    key: str
    tenant_id: UUID | None
    since: datetime | None = None
    request_id: str | None = None
    caller: JsonMapping | None = None


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """The answer; `known` is what is stored where something was done or refused."""

    state: OperationState
    known: Known | None = None


async def ask_operation(context: Context, question: Question) -> OperationOutcome:
    """The operation's state; `pending` if another transaction held the key for the whole lock timeout.

    Raises `Invalid` for a `since` in the future, `OperationTableFull` where there is no room for the tombstone without
    which nothing definite can be said, and what `Database.transaction` raises.
    """

    async def work(tx: Transaction) -> OperationOutcome | None:
        await tx.note_version()
        return await _ask(tx, question, context.limits.operation_retention_seconds)

    for _ in range(TRIES_MAX):
        try:
            outcome = await transact(context, work)
        except OperationInProgress:
            break
        if outcome is not None:
            return outcome
    return OperationOutcome(OperationState.PENDING)


async def _ask(tx: Transaction, question: Question, retention_seconds: float) -> OperationOutcome | None:
    """None if the record vanished between two looks."""
    scope, key, since = question.scope, question.key, question.since
    if since is not None and since > await read_clock(tx) + leeway_of(retention_seconds):
        raise Invalid("since: it lies in the future", errors=[{"field": "since", "message": "it lies in the future"}])
    laid_at = await asking.lay_tombstone(tx, scope, key, retention_seconds)
    if laid_at is None:
        known = await asking.read_known(tx, scope, key)
        if known is None:
            return None
        if not known.is_tombstone:
            return OperationOutcome(OperationState.COMMITTED if known.status < 400 else OperationState.REJECTED, known)
        assert known.created_at is not None, "a tombstone is a row"
        forgotten = since is not None and is_past_horizon(since, known.created_at, retention_seconds)
        return OperationOutcome(OperationState.RETIRED if forgotten else OperationState.UNKNOWN)
    standing = await asking.read_standing(tx, scope, key)
    if standing is not None:
        await asking.lift_tombstone(tx, scope, key)
        return OperationOutcome(OperationState.COMMITTED, standing)
    if since is not None and is_past_horizon(since, laid_at, retention_seconds):
        await asking.lift_tombstone(tx, scope, key)
        return OperationOutcome(OperationState.RETIRED)
    await asking.tell_of_tombstone(tx, scope, key, question.tenant_id, question.request_id, question.caller)
    return OperationOutcome(OperationState.UNKNOWN)


async def retire_operations(context: Context, limit: int) -> int:
    """Forget at most `limit` answers whose window is over, the earliest first; answers how many there were."""
    return await transact(context, lambda tx: delete_retired_operations(tx, limit))
