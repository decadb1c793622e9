"""Reads of operations: their position in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.operations.store.positions import OperationPosition, read_position
from orchestrator.problems import Problem


async def find_position(
    database: Database, scope: UUID, key: str, sequence: Callable[[], Awaitable[object]]
) -> OperationPosition | None:
    """Return the position of a stored operation; None if nothing is stored under the key.

    `sequence` is awaited if its event waits for a version. If that fails, or the log was written by a PostgreSQL that no
    operator has accepted, the position has no version. Raises `DatabaseUnavailable`.
    """
    async with database.read_one() as reading:
        position = await read_position(reading, scope, key)
    if position is None or position.version is not None:
        return position
    try:
        await sequence()
    except Problem:
        return position
    async with database.read_one() as reading:
        return await read_position(reading, scope, key)


async def with_version(database: Database, operation: Operation, answering: Awaitable[Answer]) -> Answer:
    """The awaited answer; if it is a replay, with its operation's version where the log has one."""
    answer = await answering
    if not answer.replayed or answer.version is not None:
        return answer
    try:
        async with database.read_one() as reading:
            position = await read_position(reading, operation.scope, operation.key)
    except Problem:
        return answer
    return answer if position is None else replace(answer, version=position.version)
