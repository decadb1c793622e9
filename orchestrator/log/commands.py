"""Commands of the log: sequence events, consumers, dead letters, retention policies, truncation."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Database, Transaction, TransactionConflict
from orchestrator.log.store import consumers, dead_letters, retention, truncation
from orchestrator.log.store.dead_letters import Burial
from orchestrator.log.store.head import Head, sequence
from orchestrator.log.store.truncation import Truncation
from orchestrator.operations.execution import TRIES_MAX, Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.tenancy import keep_tenant
from orchestrator.problems import DatabaseUnavailable, OperationInProgress, OutcomeUnknown, Overloaded
from orchestrator.tenants.principals import Actor, Principal

SEQUENCED_MAX = 1_000
"""Events sequenced by one transaction, which holds the lock of the log's head."""


async def sequence_events(database: Database) -> Head:
    """Sequence every waiting event; return the head, at least as new as every write acknowledged before the call.

    Any process may call it at any time. Raises `DatabaseUnavailable`, also if the connection was lost on the way: sequencing
    again is harmless. Raises `Overloaded` if other sequencers held the head for too long.
    """
    for _ in range(TRIES_MAX):
        try:
            return await _sequence_all(database)
        except TransactionConflict:
            continue
        except OutcomeUnknown as error:
            raise DatabaseUnavailable("the database cannot be reached; retry later") from error
        except OperationInProgress as error:
            raise Overloaded("another process holds the head of the log; retry later") from error
    raise Overloaded(f"other processes held the head of the log in {TRIES_MAX} tries; retry later")


async def _sequence_all(database: Database) -> Head:
    while True:
        async with database.autocommit() as tx:
            moved, head = await sequence(tx, SEQUENCED_MAX)
        if moved < SEQUENCED_MAX:
            return head


async def register_consumer(context: Context, consumer: str) -> None:
    """Register a consumer at the beginning of the log, so that nothing it has not processed is truncated.

    A registered consumer keeps its offset.
    """
    await transact(context, lambda tx: consumers.register_consumer(tx, consumer))


async def raise_consumer_position(context: Context, consumer: str, version: int) -> None:
    """Store a consumer's offset: everything up to `version` is processed. An offset never goes back."""
    await transact(context, lambda tx: consumers.raise_position(tx, consumer, version))


async def forget_consumer(context: Context, operation: Operation, actor: Actor, consumer: str, reason: str) -> Answer:
    """Delete a consumer, audited, so that the log is no longer kept for it; 200 with its offset.

    Refusals: `NotFound`; `InvalidState` for Berth's own consumers.
    """

    async def effect(tx: Transaction) -> Done:
        gone = await consumers.delete_consumer(tx, consumer)
        detail = {"version": gone.version, "reason": reason}
        await audit.record(tx, actor, "consumer.forget", f"consumers/{consumer}", detail, operation.request_id)
        return Done(200, asdict(gone))

    return await run_once(context, operation, effect, None)


async def bury_event(context: Context, burial: Burial) -> bool:
    """Store an event as a dead letter, once; the consumer may then acknowledge it.

    Returns False if the dead letter was already discarded by an operator or handled by a retry.
    """
    return await transact(context, lambda tx: dead_letters.bury(tx, burial))


async def discard_dead_letter(
    context: Context, operation: Operation, actor: Actor, dead_letter_id: UUID, reason: str
) -> Answer:
    """Discard a dead letter, audited; 200 with it. Refusals: `NotFound`; `InvalidState` for a settled one."""

    async def effect(tx: Transaction) -> Done:
        found = await dead_letters.lock_dead(tx, dead_letter_id)
        await dead_letters.discard(tx, dead_letter_id)
        detail = {"consumer": found.consumer, "version": found.version, "reason": reason}
        await audit.record(
            tx, actor, "dead_letter.discard", f"dead-letters/{dead_letter_id}", detail, operation.request_id
        )
        return Done(200, asdict(await dead_letters.read_dead_letter(tx, dead_letter_id)), dead_letter_id)

    return await run_once(context, operation, effect, None)


async def retry_dead_letter(context: Context, operation: Operation, actor: Actor, dead_letter_id: UUID) -> Answer:
    """Request a retry; 202 with the dead letter. Its consumer passes the event to the same handler at its next poll.

    Refusals: `NotFound`; `InvalidState` for a settled one. A repeated request before the poll changes nothing.
    """

    async def effect(tx: Transaction) -> Done:
        found = await dead_letters.lock_dead(tx, dead_letter_id)
        await dead_letters.ask_for_retry(tx, dead_letter_id)
        detail = {"consumer": found.consumer, "version": found.version, "reason": found.reason}
        await audit.record(
            tx, actor, "dead_letter.retry", f"dead-letters/{dead_letter_id}", detail, operation.request_id
        )
        return Done(202, asdict(await dead_letters.read_dead_letter(tx, dead_letter_id)), dead_letter_id)

    return await run_once(context, operation, effect, None)


async def retire_dead_letters(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` dead letters that were settled more than `retention_seconds` ago; return how many."""
    return await transact(context, lambda tx: dead_letters.delete_settled(tx, retention_seconds, limit))


async def put_retention_policy(
    context: Context,
    operation: Operation,
    caller: Principal,
    scope: UUID,
    policy_id: str,
    prevent_truncate: int,
    *,
    versions_max: int | None,
    policies_max: int,
) -> Answer:
    """Create or change a policy; 201 or 200 with it. Raises as `put_policy`, and `TenantDeleted`."""

    async def effect(tx: Transaction) -> Done:
        await keep_tenant(tx, caller.tenant_id)
        policy, made = await retention.put_policy(
            tx, scope, policy_id, prevent_truncate, versions_max=versions_max, policies_max=policies_max
        )
        if caller.tenant_id is None:
            detail = {"prevent_truncate": prevent_truncate}
            await audit.record(
                tx, caller.actor, "retention.put", f"retention/{policy_id}", detail, operation.request_id
            )
        return Done(201 if made else 200, asdict(policy))

    return await run_once(context, operation, effect, caller.tenant_id)


async def remove_retention_policy(
    context: Context, operation: Operation, caller: Principal, scope: UUID, policy_id: str
) -> Answer:
    """Delete a policy; 204. The next sweep may truncate the log. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        held = await retention.delete_policy(tx, scope, policy_id)
        if caller.tenant_id is None:
            detail = {"prevent_truncate": held}
            await audit.record(
                tx, caller.actor, "retention.delete", f"retention/{policy_id}", detail, operation.request_id
            )
        return Done(204, None)

    return await run_once(context, operation, effect, caller.tenant_id)


async def truncate_log(context: Context, *, age_seconds: float, versions_min: int) -> Truncation:
    """Drop the log's oldest partition if it is due and not needed; return the outcome.

    Readers and writers wait for at most 50 ms; after that the outcome is `busy` and the caller tries again.
    """
    async with context.database.transaction() as tx:
        done = await truncation.truncate(tx, age_seconds=age_seconds, versions_min=versions_min)
        if done is Truncation.DROPPED:
            reach(CrashPoint.TRUNCATE_LOG_BEFORE_COMMIT)
    if done is Truncation.DROPPED:
        reach(CrashPoint.TRUNCATE_LOG_AFTER_COMMIT)
    return done


async def settle_retry(context: Context, dead_letter_id: UUID, failure: tuple[str, str] | None = None) -> bool:
    """Record a retry: settled without `failure` (reason, detail), else dead again. False if it was settled meanwhile."""
    return await transact(context, lambda tx: dead_letters.settle_retry(tx, dead_letter_id, failure))
