"""Which version of the log an answer is as of: asked for around a request, told by the snapshots that it reads.

A snapshot that shows version v of the log shows the effects of every event up to v, because an event is given its version
after the transaction that left it has committed. So the head, read in the snapshot of the content, is a version whose
effects the content certainly includes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import CursorResult, Result, TextClause, text
from sqlalchemy.engine import IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData

# A nested loop over the one row of the head: the content keeps its order, and comes in the same statement's snapshot.
_AS_OF = """
select head.version, content.* from log_head head left join (select true as is_there, asked.* from (
{statement}
) asked) content on true"""
HEAD = "select version from log_head"


@dataclass(slots=True)
class AsOf:
    """One answer's version: the lowest of its snapshots', None before the first. The client wants `at_least`."""

    at_least: int = 0
    version: int | None = None

    def note(self, version: int) -> None:
        """Something that the answer shows was read at this version."""
        self.version = version if self.version is None else min(self.version, version)


as_of: ContextVar[AsOf | None] = ContextVar("as_of", default=None)
"""Set around a request whose answer tells its version; None: nobody asks."""


def note_version(version: int | None) -> None:
    """What is remembered from this version is shown in the answer, if one asks."""
    asked = as_of.get()
    if asked is not None and version is not None:
        asked.note(version)


@lru_cache(maxsize=1024)
def with_head(statement: str) -> TextClause:
    """The statement, its rows preceded by the head's version and by whether there is a row of its own at all."""
    return text(_AS_OF.format(statement=statement))


def without_head(result: CursorResult[Any], asked: AsOf) -> Result[Any]:
    """The rows of the statement itself; the version goes to who asked."""
    names = list(result.keys())[2:]
    rows: Sequence[Any] = result.all()
    asked.note(rows[0][0])
    return IteratorResult(SimpleResultMetaData(names), iter([tuple(row)[2:] for row in rows if row[1]]))
