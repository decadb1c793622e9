"""Execution of client-visible writes: at most once per key, refusals stored, conflicts retried (P2, P4; DESIGN §6).

`run_once` gives an effect its transaction. The idempotency key is reserved first and concluded in the same transaction.
A business refusal rolls the effect back and is stored alone, in a new transaction, with its event; the first committed
record wins. A transaction that PostgreSQL rolled back because of a concurrent one is retried a bounded number of times.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.crash_points import CrashPoint, reach, reach_commit
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.networks.rules import NetworkLimits
from orchestrator.operations.queries import with_version
from orchestrator.operations.refusals import OperationUnstorable
from orchestrator.operations.store import operations, refusals
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.refusals import Refused
from orchestrator.problems import OperationInProgress, Overloaded, Problem, SlotOverflow
from orchestrator.retries import Retries
from orchestrator.tasks.signing import TaskSigner

TRIES_MAX = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on waits and retries; each is a setting of the same name (orchestrator/settings.py)."""

    requested_seconds_max: float = 300.0
    provision_seconds_max: float = 900.0
    provision_attempts_max: int = 3
    provision_retry_first_seconds: float = 2.0
    provision_retry_seconds_max: float = 30.0
    release_seconds_max: float = 300.0
    release_attempts_max: int = 3
    release_retry_first_seconds: float = 1.0
    release_retry_seconds_max: float = 30.0
    release_graceful_seconds: float = 10.0
    operation_retention_seconds: float = 86_400.0
    hold_seconds_max: float = 3_600.0
    window_seconds_max: float = 5 * 365 * 86_400.0
    reservation_retention_seconds: float = 604_800.0
    reservations_max: int = 100_000
    holds_max: int = 50_000
    resources_max: int = 100_000
    shard: int = 0
    units_seconds_max: float = 3_600.0
    ending_notice_seconds: float = 900.0
    lost_after_seconds: float = 600.0
    lost_release_seconds: float = 86_400.0
    fault_reports_per_day_max: int = 50
    rescues_allowed: bool = True
    networks: NetworkLimits = field(default_factory=NetworkLimits)

    @property
    def provision_retries(self) -> Retries:
        """How often and how far apart a provision is tried."""
        return Retries(
            self.provision_attempts_max, self.provision_retry_first_seconds, self.provision_retry_seconds_max
        )

    @property
    def release_retries(self) -> Retries:
        """How often and how far apart a release is tried."""
        return Retries(self.release_attempts_max, self.release_retry_first_seconds, self.release_retry_seconds_max)


Result = Answer | Problem
"""The result of one item: an answer to send, or a problem that leaves no record."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """This item would block the batch; the caller retries it alone."""

    retry_alone: Callable[[], Awaitable[Result]]


class Gatekeeper(Protocol):
    """Caches recent answers, so that a duplicate does not ask the database (orchestrator/edge/gate.py)."""

    async def answer(self, operation: Operation, run: Callable[[], Awaitable[Answer]]) -> Answer:
        """The operation's stored answer, else the answer of `run`."""


@dataclass(frozen=True, slots=True)
class Context:
    """What commands work with. `signer` is absent in processes that issue no tasks, `gate` in those that serve no clients.

    `fault_labels_allowed`: labels of an allocation may throw the sandbox's fault switches (allocations/rules.py).
    """

    database: Database
    limits: Limits
    signer: TaskSigner | None = None
    fault_labels_allowed: bool = False
    gate: Gatekeeper | None = None

    def for_tenants(self, *tenants: UUID) -> Context:
        """The same, for acts on rows of these tenants alone (orchestrator/database/row_security.py)."""
        return replace(self, database=self.database.for_tenants(*tenants))

    def for_platform(self) -> Context:
        """The same, for acts of the platform, on rows of any tenant."""
        return replace(self, database=self.database.for_platform())


@dataclass(frozen=True, slots=True)
class Done:
    """What an effect leaves for its client: status, JSON body, and the object it is about.

    `body`: text is stored and sent as it is, so that PostgreSQL can write the same bytes again from the row.
    `code`: `ok`, or `noop` where there was nothing left to do.
    """

    status: int
    body: JsonObject | str | None
    subject: UUID | None = None
    code: str = "ok"

    @property
    def text(self) -> str:
        """The body as it is stored and sent; empty if there is none."""
        if self.body is None or isinstance(self.body, str):
            return self.body or ""
        return json.dumps(self.body, default=json_value)


Effect = Callable[[Transaction], Awaitable[Done]]


async def run_once(context: Context, operation: Operation, effect: Effect, tenant_id: UUID | None) -> Answer:
    """Run `effect` at most once under the operation's key and return the answer of its first run.

    Raises any `Problem` that is not a business refusal; those leave nothing behind.
    """
    if context.gate is None:
        return await _run_through(context, operation, effect, tenant_id)
    running = partial(_run_through, context, operation, effect, tenant_id)
    return await context.gate.answer(operation, lambda: with_version(context.database, operation, running()))


async def _run_through(context: Context, operation: Operation, effect: Effect, tenant_id: UUID | None) -> Answer:
    for _ in range(TRIES_MAX):
        try:
            return await _attempt(context, operation, effect)
        except TransactionConflict:
            continue
        except Problem as refusal:
            return await remembered(context, operation, refusal, tenant_id)
    raise Overloaded("concurrent requests for the same objects kept this one from running; retry with the same key")


async def transact(context: Context, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run `work` in one transaction, and in a new one after each conflict, at most `TRIES_MAX` times.

    For commands that carry their own guard against repetition and so need no operation key. Raises `Overloaded` when
    rivals always won, and whatever `Database.transaction` raises.
    """
    for _ in range(TRIES_MAX):
        try:
            async with context.database.transaction() as tx:
                done = await work(tx)
                reach_commit(work, "before_commit")
            reach_commit(work, "after_commit")
            return done
        except TransactionConflict:
            continue
    raise Overloaded("concurrent requests for the same objects kept this one from running; retry later")


async def _attempt(context: Context, operation: Operation, effect: Effect) -> Answer:
    async with context.database.transaction() as tx:
        stored = await operations.reserve_key(tx, operation)
        if stored is not None:
            return stored
        done = await effect(tx)
        correlation_id = done.body.get("correlation_id") if isinstance(done.body, dict) else None
        if correlation_id is not None:
            tx.audited = {**(tx.audited or {}), "correlation": correlation_id}
        answer = await operations.conclude(
            tx, operation, status=done.status, code=done.code, body=done.text, subject=done.subject
        )
        reach_commit(effect, "before_commit")
    reach_commit(effect, "after_commit")
    return answer


async def remembered(context: Context, operation: Operation, refusal: Problem, tenant_id: UUID | None) -> Answer:
    """Store the refusal as its key's answer; return it, or the first answer stored for the key.

    Raises the refusal itself if it is not a business outcome (those are not stored), and any `Problem` met in storing it.
    """
    if not refusal.business:
        raise refusal
    (answer,) = await store_refusals_of(context, [Refused(operation, refusal, tenant_id)])
    if isinstance(answer, Problem):
        raise answer from refusal
    assert isinstance(answer, Answer), "one alone is stored at once"
    return answer


async def store_refusals_of(context: Context, refused: Sequence[Refused]) -> list[Result | Deferred]:
    """Store refusals under their keys, each with its event; return one result per refusal.

    They share a transaction. If one of the keys is locked, or the table has no room for one of them, each is deferred: the
    caller stores it alone, so that only that one waits. A single refusal is stored now. A failure of the database is the
    result of each and is not raised: the caller has other results, whose effects are committed.
    """
    if len(refused) == 1:
        return [await _remember_alone(context, refused[0])]
    try:
        return [*(await _remember(context, refused) if refused else ())]
    except (OperationInProgress, OperationUnstorable, SlotOverflow):
        return [Deferred(partial(_remember_alone, context, one)) for one in refused]


async def _remember_alone(context: Context, refused: Refused) -> Result:
    try:
        (answer,) = await _remember(context, [refused])
        return answer
    except (OperationInProgress, OperationUnstorable, SlotOverflow) as unstorable:
        return unstorable


async def _remember(context: Context, refused: Sequence[Refused]) -> Sequence[Result]:
    context = context.for_tenants(*(one.operation.scope for one in refused))  # of a batch, which may be of several
    for _ in range(TRIES_MAX):
        try:
            async with context.database.transaction() as tx:
                answers = await refusals.store_refusals(tx, refused)
                reach(CrashPoint.REFUSAL_BEFORE_COMMIT)
            reach(CrashPoint.REFUSAL_AFTER_COMMIT)
            return answers
        except TransactionConflict:
            continue
        except (OperationInProgress, OperationUnstorable, SlotOverflow):
            raise
        except Problem as trouble:
            return [trouble] * len(refused)
    contended = Overloaded("concurrent requests for the same keys kept this one from running; retry with the same key")
    return [contended] * len(refused)


def json_value(value: object) -> str:
    """How values without a JSON form are written: times as RFC 3339 in UTC with microseconds, ids as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)
