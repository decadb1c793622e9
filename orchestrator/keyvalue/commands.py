"""Commit transactions of keys and values, and return their versions (docs/reference/keyvalue.md).

A batch shares one server-side call, which checks and applies the transactions one after another; then waiting events are
sequenced and their versions read. If the process dies between the two, the transaction is committed without a known version:
a retry with the same key, `GET /v1/status` and the relay sequence it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import orjson

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.keyvalue.store import transactions
from orchestrator.keyvalue.store.keys import LogPosition
from orchestrator.keyvalue.store.transactions import Commit, StoredCommit, commit_all, give_versions
from orchestrator.operations.execution import TRIES_MAX, Context, Deferred, Result, remembered, transact
from orchestrator.operations.refusals import OperationQuotaExceeded, OperationUnstorable
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import OperationInProgress, OutcomeUnknown, Overloaded, Problem, QuotaExceeded

SEQUENCED_MAX = 2_000
"""Events sequenced by one call, which holds the lock of the log's head."""
CALLS_MAX = 100
RETRIED_ALONE = (TransactionConflict, OperationInProgress, OperationUnstorable)
"""Errors of a batch that one of its transactions may have caused: each is retried alone."""


async def commit_transactions(context: Context, commits: Sequence[Commit]) -> list[Result | Deferred]:
    """Commit a batch; return one outcome per transaction, in input order: 200 with `committed` or `not_committed`.

    A key used before gets its first answer. A transaction that reads ranges, or may fill its namespace, is deferred: the
    caller runs it alone. Keys within the batch must be distinct per principal. Stored refusal: `QuotaExceeded`. Not stored:
    `VersionInFuture`, `Forbidden`, `LeaderUnaccepted`, `OperationInProgress`, `OperationUnstorable`; `OutcomeUnknown` if it was
    committed but its version is unknown. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the whole batch.
    """
    light = [n for n, commit in enumerate(commits) if not commit.is_heavy]
    results: list[Result | Deferred] = [Deferred(partial(_alone, context, commit)) for commit in commits]
    try:
        head, outcomes = await _try(context, [commits[n] for n in light], alone=False) if light else (0, [])
    except OperationQuotaExceeded as full:
        rest = [n for n, commit in enumerate(commits) if commit.tenant_id != full.tenant_id]
        for n, result in zip(rest, await commit_transactions(context, [commits[n] for n in rest]), strict=True):
            results[n] = result
        return results
    except RETRIED_ALONE:
        return results
    stored: dict[int, StoredCommit] = {}
    for n, outcome in zip(light, outcomes, strict=True):
        if isinstance(outcome, Problem):
            results[n] = outcome
        elif outcome is not None:
            stored[n] = outcome
    for n, answer in zip(stored, await _with_versions(context, head, list(stored.values())), strict=True):
        results[n] = answer
    return results


async def _alone(context: Context, commit: Commit) -> Result:
    try:
        return await _commit_alone(context, commit)
    except Problem as problem:
        return problem


async def _commit_alone(context: Context, commit: Commit) -> Answer:
    """Commit one transaction; outcomes as for `commit_transactions`, refusals raised."""
    for _ in range(TRIES_MAX):
        try:
            head, (outcome,) = await _try(context, [commit], alone=True)
        except TransactionConflict:
            continue
        except QuotaExceeded as refusal:
            return await remembered(context, commit.operation, refusal, commit.tenant_id)
        if isinstance(outcome, Problem):
            raise outcome
        assert outcome is not None, "a full namespace raises QuotaExceeded"
        (result,) = await _with_versions(context, head, [outcome])
        if isinstance(result, Problem):
            raise result
        return result
    raise Overloaded(f"other requests with the same key conflicted {TRIES_MAX} times; retry later")


async def _try(
    context: Context, commits: Sequence[Commit], *, alone: bool
) -> tuple[int, list[StoredCommit | Problem | None]]:
    tenants = {id_ for commit in commits for id_ in (commit.namespace, commit.operation.scope)}
    async with context.database.for_tenants(*tenants).autocommit() as tx:
        reach(CrashPoint.COMMIT_TRANSACTIONS_BEFORE_COMMIT)
        done = await commit_all(tx, commits, alone=alone)
    reach(CrashPoint.COMMIT_TRANSACTIONS_AFTER_COMMIT)
    return done


async def _with_versions(context: Context, head: int, stored: Sequence[StoredCommit]) -> list[Answer | Problem]:
    """Return the answers with their versions, or `OutcomeUnknown` for those whose version is unknown."""
    try:
        positions = await _positions(context, head, stored)
    except Problem as problem:
        unknown = OutcomeUnknown(
            f"the transaction is stored, but its version is not known yet: {problem.detail}; retry with the same key"
        )
        return [unknown if each.event_id is not None else each.answer for each in stored]
    return [_complete(each, positions) for each in stored]


def _complete(stored: StoredCommit, positions: Mapping[str, LogPosition]) -> Answer | Problem:
    if stored.event_id is None or stored.answer.status >= 400:
        return stored.answer
    position = positions.get(stored.event_id) or stored.position
    if position is None:
        return OutcomeUnknown("the transaction is stored, but the log has dropped its version; see GET /v1/status")
    body = orjson.loads(stored.answer.body)
    document = {
        "status": body["status"], "conflicts": body["conflicts"], "version": position.version,
        "leader_id": position.leader_id, "request_id": body["request_id"],
    }  # fmt: skip
    text = orjson.dumps(document).decode()
    return Answer(200, text, stored.answer.replayed, stored.answer.kept_seconds, position.version)


async def _positions(context: Context, head: int, stored: Sequence[StoredCommit]) -> dict[str, LogPosition]:
    """Sequence until every event has a position or nothing waits; return the positions found."""
    events = [each.event_id for each in stored if each.event_id is not None]
    if not events:
        return {}
    after = 0 if any(each.answer.replayed for each in stored) else head
    found: dict[str, LogPosition] = {}
    for _ in range(CALLS_MAX):
        try:
            async with context.database.autocommit() as tx:
                moved, found = await give_versions(tx, events, after, SEQUENCED_MAX)
        except TransactionConflict:
            continue
        if len(found) == len(events) or moved < SEQUENCED_MAX:
            return found
    raise OutcomeUnknown(f"the event was not sequenced within {CALLS_MAX} calls")


async def forget_deleted_keys(context: Context, limit: int) -> int:
    """Remove up to `limit` deleted keys, the oldest first; return how many."""
    return await transact(context, lambda tx: transactions.forget_deleted_keys(tx, limit))
