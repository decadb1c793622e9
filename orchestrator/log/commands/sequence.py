"""Give what waits in the outbox its place in the log. Anyone may do it, at any time, any number at once (DESIGN §7)."""

from __future__ import annotations

from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.log.store.head import Head, sequence
from orchestrator.operations.execution import TRIES_MAX
from orchestrator.problems import DatabaseUnavailable, OperationInProgress, OutcomeUnknown, Overloaded

BATCH_MAX = 1_000


async def sequence_events(database: Database) -> Head:
    """The head, at least as new as every write of any kind that was acknowledged before the call.

    Raises `DatabaseUnavailable`, also where the connection was lost on the way: whatever was sequenced, nobody's request
    depends on its having been this call. Raises `Overloaded` where others kept the head for too long.
    """
    for _ in range(TRIES_MAX):
        try:
            return await _sequence_all(database)
        except TransactionConflict:
            continue
        except OutcomeUnknown as error:
            raise DatabaseUnavailable("the database cannot be reached; nothing was done") from error
        except OperationInProgress as error:
            raise Overloaded("the log's head is taken; try again") from error
    raise Overloaded("rivals for the log's head kept this from running; try again")


async def _sequence_all(database: Database) -> Head:
    while True:
        async with database.autocommit() as tx:
            moved, head = await sequence(tx, BATCH_MAX)
        if moved < BATCH_MAX:
            return head
