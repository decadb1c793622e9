"""Reads that a standby may serve: lists, availability and the feed's catch-up, and nothing that decides anything.

A client chooses by stating `min_version`: its read is served by a standby that has that version, or by the primary. The answer
contains every event up to that version, and the effects of each. What was committed and has no version yet may be in an answer of
the primary and missing in a later one of a standby. A read without `min_version` sees every write that was acknowledged before,
as only the primary can promise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from orchestrator.database.replicas.rules import NotServed
from orchestrator.database.transactions import Database, Reading

Answer = TypeVar("Answer")


async def read_replicated(
    database: Database,
    read: Callable[[Reading], Awaitable[Answer]],
    *,
    snapshot: bool = True,
    catch_up_after: int | None = None,
) -> Answer:
    """The result of `read`, from a standby if the request states the version that it demands, else from the primary.

    `read` is called again on the primary if no standby served it, so it must do nothing but read. `snapshot`: its statements see
    one snapshot; False for a single statement, which costs fewer round trips. `catch_up_after`: any standby that has more of the
    log than this version will do, at once; for reads of the log itself.
    Raises what `read` raises on the primary, and as `Database.reading`.
    """
    replica, asked = database.replica, database.response_version
    at_least = asked.at_least if asked is not None and asked.is_stated else None
    if catch_up_after is not None:
        at_least = catch_up_after + 1
    if replica is not None and at_least is not None:
        try:
            answer, version = await replica.read(
                read, at_least, database.tenants, snapshot=snapshot, waits=catch_up_after is None
            )
        except NotServed as refused:
            replica.note_fallback(refused.cause)
        else:
            replica.note_served()
            database.note_version(version)
            return answer
    async with database.reading() if snapshot else database.read_one() as reading:
        return await read(reading)
