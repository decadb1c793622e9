"""Sessions on the databases of tests that are used again: a new one costs the server and the test five milliseconds."""

from __future__ import annotations

import select
import threading
from collections import defaultdict
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

_idle: dict[str, list[KeptSession]] = defaultdict(list)
_one_by_one = threading.Lock()


class KeptSession(psycopg.Connection[Any]):
    """A connection whose `close` keeps the session for the next `session` of the same address, without its settings and locks."""

    address = ""

    def close(self) -> None:
        """Keep the session if nothing is open in it; otherwise end it."""
        if self.closed or self.pgconn.transaction_status != pq.TransactionStatus.IDLE or not self.autocommit:
            self.end()
            return
        try:
            self.execute("discard all")
        except psycopg.Error:
            self.end()
            return
        self.row_factory = tuple_row
        with _one_by_one:
            if self not in _idle[self.address]:
                _idle[self.address].append(self)

    def end(self) -> None:
        """End the session."""
        super().close()

    @property
    def answers(self) -> bool:
        """Whether the server has said nothing since: it would say that the session has ended."""
        if self.closed:
            return False
        said = select.poll()
        said.register(self.fileno(), select.POLLIN)
        return not said.poll(0)


def session(url: str) -> psycopg.Connection[Any]:
    """An autocommit connection to this address that no other caller uses meanwhile."""
    while True:
        with _one_by_one:
            found = _idle[url].pop() if _idle[url] else None
        if found is None:
            # What is prepared would have to be prepared again after a test changes a table.
            made = KeptSession.connect(url, autocommit=True, prepare_threshold=None)
            made.address = url
            return made
        if found.answers:
            return found
        found.end()


def end_sessions(database: str) -> None:
    """End the idle sessions on the databases of this name."""
    with _one_by_one:
        ended = [url for url in _idle if url.partition("?")[0].rpartition("/")[2] == database]
        sessions = [kept for url in ended for kept in _idle.pop(url)]
    for kept in sessions:
        kept.end()
