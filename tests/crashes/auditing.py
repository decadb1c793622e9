"""What goes on while a process dies that chains the audit."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from tests.crashes.stage import Stage
from tests.support.waiting import wait_for

ROWS = 10


def the_audit_is_chained(stage: Stage) -> Iterator[None]:
    """Rows that wait enter the chain, each once and without a gap, whatever happens meanwhile."""
    with psycopg.connect(stage.stack.endpoints.database_url, autocommit=True) as database:
        yield
        insert = "insert into audit (principal_kind, principal_id, action, subject) values ('system', 'test', 'thing.turn', %s)"
        for number in range(ROWS):
            database.execute(insert, (f"crash/{number}",))
        count = "select count(sequence), count(*) from audit where subject like 'crash/%'"

        def chained() -> bool:
            return database.execute(count).fetchone() == (ROWS, ROWS)

        wait_for(chained, "every row is in the chain once")
        gaps = "select count(*) - max(sequence) from audit_chain"
        assert database.execute(gaps).fetchone() == (0,), "the chain has no gap"
