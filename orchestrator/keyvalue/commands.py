"""Commit transactions of keys and values, and tell the versions that they have in the log (docs/reference/keyvalue.md).

A list shares one server-side call, which judges and applies them one after another; then what waits is sequenced, and their
versions are read. Between these two a transaction is committed and nobody knows its version: who dies there leaves it to the
next request with the same key, to `GET /v1/status`, and to the relay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import TransactionConflict
from orchestrator.keyvalue.rules import NamespaceFull, VersionInFuture
from orchestrator.keyvalue.store import transactions
from orchestrator.keyvalue.store.transactions import Commit, commit_all, give_versions
from orchestrator.operations.execution import TRIES_MAX, Context, Deferred, Result, remembered, transact
from orchestrator.operations.outcomes import StoredResponse
from orchestrator.operations.store.operations import Answer, replay
from orchestrator.problems import OperationInProgress, OutcomeUnknown, Overloaded, Problem
from orchestrator.reservations.refusals import OperationTableFull

SEQUENCED_MAX = 2_000
"""Events sequenced by one call: its transaction holds the log's head."""
CALLS_MAX = 100
FOR_ONES_SAKE = (TransactionConflict, OperationInProgress, OperationTableFull)
"""Why a list may fail for the sake of one of its transactions: each is tried alone."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is stored under a key, but for the version."""

    answer: Answer
    event_id: str | None


async def commit_transactions(context: Context, commits: Sequence[Commit]) -> list[Result | Deferred]:
    """What became of each, in order: 200 with `committed` or `not_committed`, or the first answer that its key was given.

    One that looks at ranges, or whose namespace could come to be full, is for the caller to try alone, later. Keys within
    the list must be distinct per principal; the caller sees to it. Refusals, remembered with the key: `NamespaceFull`. Told
    and not remembered: `VersionInFuture`, `LeaderUnaccepted`, `OperationInProgress`, `OperationTableFull`, `OutcomeUnknown`:
    it was committed, and its version cannot be told now. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list.
    """
    light = [n for n, commit in enumerate(commits) if not commit.is_heavy]
    results: list[Result | Deferred] = [Deferred(partial(_alone, context, commit)) for commit in commits]
    try:
        head, outcomes = await _try(context, [commits[n] for n in light], alone=False) if light else (0, [])
    except FOR_ONES_SAKE:
        return results
    settled: dict[int, Settled] = {}
    for n, outcome in zip(light, outcomes, strict=True):
        if outcome["outcome"] == "full":
            continue
        try:
            settled[n] = _settled(commits[n], outcome)
        except Problem as refusal:
            results[n] = refusal
    for n, answer in zip(settled, await _with_versions(context, head, list(settled.values())), strict=True):
        results[n] = answer
    return results


async def _alone(context: Context, commit: Commit) -> Result:
    try:
        return await _commit_alone(context, commit)
    except Problem as problem:
        return problem


async def _commit_alone(context: Context, commit: Commit) -> Answer:
    """As `commit_transactions`, for one; raises what that tells."""
    for _ in range(TRIES_MAX):
        try:
            head, (outcome,) = await _try(context, [commit], alone=True)
        except TransactionConflict:
            continue
        except NamespaceFull as refusal:
            return await remembered(context, commit.operation, refusal, commit.tenant_id)
        (result,) = await _with_versions(context, head, [_settled(commit, outcome)])
        if isinstance(result, Problem):
            raise result
        return result
    raise Overloaded("rivals for the same key kept this from running; try again")


async def _try(context: Context, commits: Sequence[Commit], *, alone: bool) -> tuple[int, list[dict[str, Any]]]:
    async with context.database.autocommit() as tx:
        reach(CrashPoint.COMMIT_TRANSACTIONS_BEFORE_COMMIT)
        done = await commit_all(tx, commits, alone=alone)
    reach(CrashPoint.COMMIT_TRANSACTIONS_AFTER_COMMIT)
    return done


def _settled(commit: Commit, outcome: dict[str, Any]) -> Settled:
    """What is stored. Raises `OperationConflict` or `OperationFenced`, `VersionInFuture`."""
    match outcome["outcome"]:
        case "committed" | "not_committed":
            body = orjson.dumps(outcome["body"]).decode()
            return Settled(Answer(200, body, kept_seconds=commit.operation.retention_seconds), outcome["event_id"])
        case "existing":
            return Settled(replay(commit.operation, StoredResponse.decode(outcome)), outcome.get("event_id"))
        case "version_in_future":
            raise VersionInFuture(
                f"version {commit.version_max} was told to nobody; the log ends at {outcome['head']}",
                version=outcome["head"],
            )
        case word:
            raise ValueError(f"{word} is not an outcome of a commit")


async def _with_versions(context: Context, head: int, settled: Sequence[Settled]) -> list[Answer | Problem]:
    """The answers, complete; `OutcomeUnknown` where the version cannot be told."""
    try:
        versions = await _versions(context, head, settled)
    except Problem as problem:
        untold = OutcomeUnknown(
            f"it was stored, and its version cannot be told now: {problem.detail}; retry with the same key"
        )
        return [untold if one.event_id is not None else one.answer for one in settled]
    return [_complete(one, versions) for one in settled]


def _complete(settled: Settled, versions: dict[str, tuple[int, str]]) -> Answer | Problem:
    if settled.event_id is None or settled.answer.status >= 400:
        return settled.answer
    if settled.event_id not in versions:
        return OutcomeUnknown("it was stored so long ago that the log does not keep its version any more")
    stored = orjson.loads(settled.answer.body)
    version, leader_id = versions[settled.event_id]
    told = {
        "status": stored["status"], "conflicts": stored["conflicts"], "version": version, "leader_id": leader_id,
        "request_id": stored["request_id"],
    }  # fmt: skip
    return Answer(200, orjson.dumps(told).decode(), settled.answer.replayed, settled.answer.kept_seconds)


async def _versions(context: Context, head: int, settled: Sequence[Settled]) -> dict[str, tuple[int, str]]:
    """Of those events that have one; sequences what waits until each has, or nothing waits any more."""
    events = [one.event_id for one in settled if one.event_id is not None]
    if not events:
        return {}
    after = 0 if any(one.answer.replayed for one in settled) else head
    found: dict[str, tuple[int, str]] = {}
    for _ in range(CALLS_MAX):
        try:
            async with context.database.autocommit() as tx:
                moved, found = await give_versions(tx, events, after, SEQUENCED_MAX)
        except TransactionConflict:
            continue
        if len(found) == len(events) or moved < SEQUENCED_MAX:
            return found
    raise OutcomeUnknown("others kept the log's head, or too much waits for its version")


async def forget_deleted_keys(context: Context, limit: int) -> int:
    """Forget about `limit` of them, the earliest first; answers how many there were."""
    return await transact(context, lambda tx: transactions.forget_deleted_keys(tx, limit))
