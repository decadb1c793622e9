"""Bounds on tables that grow with what clients do (P13): judged by counts that are kept, never by counting rows.

`live_rows` (migrations/schema/database.sql) is written by triggers in the transaction of the rows themselves, so it
is always right. A bound is exact: near it, transactions that add rows go one at a time until they commit.
"""

from __future__ import annotations

from enum import StrEnum

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.operations.refusals import OperationTableFull
from orchestrator.problems import Problem
from orchestrator.reservations.refusals import ExpirationIndexFull, ReservationTableFull, ResourceTableFull


class Table(StrEnum):
    """What is counted. Reservations are the live ones; holds are those among them that wait for their deadline."""

    OPERATIONS = "operations"
    RESOURCES = "resources"
    RESERVATIONS = "reservations"
    HOLDS = "holds"


_REFUSALS: dict[Table, tuple[type[Problem], str]] = {
    Table.OPERATIONS: (OperationTableFull, "there is no room to remember another operation; nothing was begun"),
    Table.RESOURCES: (ResourceTableFull, "{bound} resources are registered, which is the most; none was added"),
    Table.RESERVATIONS: (ReservationTableFull, "{bound} reservations are live, which is the most; none was made"),
    Table.HOLDS: (ExpirationIndexFull, "{bound} holds wait for their deadline, which is the most; none was made"),
}
_ROOM = "select room_left(:kind, :bound)"
_COUNTS = "select kind, sum(number)::bigint as number from live_rows group by kind"
_GATHER = "select gather_live_rows() + gather_tenant_rows(:limit)"
GATHERED_MAX = 1_000
"""Stripes of tenants that one call adds up."""


async def require_room(tx: Transaction, table: Table, bound: int, rows: int = 1) -> None:
    """There is room for so many more rows beside those of this transaction, and it stays so until this commits.

    Call it before the first write, and of several tables in the order of `Table`. Raises the table's refusal: nothing was
    done, and nothing is remembered of it.
    """
    left: int = (await tx.execute(_ROOM, {"kind": table.value, "bound": bound})).scalar_one()
    if left < rows:
        refusal, detail = _REFUSALS[table]
        raise refusal(detail.format(bound=bound))


async def count_rows(reading: Reading) -> dict[Table, int]:
    """How many rows there are of each."""
    found = {row.kind: row.number for row in await reading.execute(_COUNTS)}
    return {table: int(found.get(table.value, 0)) for table in Table}


async def gather_counts(tx: Transaction) -> int:
    """Add up what sessions that are gone have counted, so that the sum stays short; how many stripes that were."""
    gathered: int = (await tx.execute(_GATHER, {"limit": GATHERED_MAX})).scalar_one()
    return gathered
