"""Sequencing: the outbox's rows get their versions, all the time, whatever NATS does.

The loop runs in a separate thread and calls libpq without psycopg's query layer: a read of an empty outbox costs a
quarter of the processor time that way, and 100 of them a second keep the latency of an idle event short.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import structlog
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus

from berth.process.backoff import Backoff
from berth.process.database_connections import ANSWER_SECONDS_MAX, shut
from berth.process.restore_gate import RestoreOpen, require_no_restore_now
from outbox_relay.crash_points import CrashPoint, reach
from outbox_relay.metrics import Metrics
from outbox_relay.postgres import PASSING_ERRORS, bounded_address
from outbox_relay.problems import first_line
from outbox_relay.settings import Settings
from outbox_relay.state import WAITING_FOR_RESTORE, RelayState

FIRST_PAUSE_SECONDS = 0.05
STATEMENT = b"advance_log"
# The head is read in the statement's own snapshot: what others sequenced shows at the latest one look later.
ADVANCE = b"select log_advance($1::integer), (select version from log_head)"
OBSERVE = """
    select (select count(*) from (select from outbox limit 100000) waiting),
           coalesce((select date_part('epoch', clock_timestamp() - occurred_at) from outbox order by id limit 1), 0)"""

log = structlog.get_logger("sequencing")


class Sequencer:
    """Gives outbox rows their versions until `stopping` is set; reports the head to `on_head` when it has moved.

    Any number may run at once. Losing Postgres is survived with backoff; any other error ends `run` with that error.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        state: RelayState,
        on_head: Callable[[int], None],
        stopping: threading.Event,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._state = state
        self._on_head = on_head
        self._stopping = stopping
        self._head = 0
        self._observe_at = 0.0
        self._waiting: tuple[float, int] | None = None

    def run(self) -> None:
        """Sequence until `stopping` is set. Raises psycopg.Error for what no new connection can cure."""
        address = bounded_address(self._settings.database_url, "sequencing")
        backoff = Backoff(FIRST_PAUSE_SECONDS, self._settings.relay_backoff_seconds_max)
        while not self._stopping.is_set():
            try:
                with psycopg.connect(address, autocommit=True) as connection:
                    with self._owed(connection):
                        require_no_restore_now(connection)
                    self._sequence(connection, backoff)
            except PASSING_ERRORS as error:
                is_restore = isinstance(error, RestoreOpen)
                self._state.sequencing = WAITING_FOR_RESTORE if is_restore else "waiting for postgres"
                self._metrics.reconnects.labels(server="postgres", step="sequencing").inc()
                log.warning("postgres_lost", why=first_line(error))
                self._stopping.wait(backoff.next_seconds())

    def abandon_if_silent(self, now: float) -> bool:
        """From another thread: end the connection if Postgres has not answered for `ANSWER_SECONDS_MAX`; return whether.

        `now` is a monotonic time. libpq waits without a limit.
        """
        waiting = self._waiting
        if waiting is None or now - waiting[0] < ANSWER_SECONDS_MAX:
            return False
        if self._waiting is waiting:
            shut(waiting[1])
        log.warning("postgres_silent", seconds=now - waiting[0])
        return True

    def _sequence(self, connection: psycopg.Connection, backoff: Backoff) -> None:
        self._run(connection, lambda: connection.pgconn.prepare(STATEMENT, ADVANCE))
        batch = self._settings.relay_sequence_batch_max
        parameters = [str(batch).encode()]
        log.info("sequencing", batch_max=batch)
        while not self._stopping.is_set():
            # Before the step that may wait for a lock: the depth must be known during that wait.
            if time.monotonic() >= self._observe_at:
                self._observe(connection)
            moved = self._advance(connection, parameters)
            backoff.reset()
            self._state.sequencing = "running"
            if moved < batch:
                self._stopping.wait(self._settings.relay_poll_seconds)

    def _advance(self, connection: psycopg.Connection, parameters: list[bytes]) -> int:
        began = time.perf_counter()
        result = self._run(connection, lambda: connection.pgconn.exec_prepared(STATEMENT, parameters))
        moved, head = int(result.get_value(0, 0) or b"0"), int(result.get_value(0, 1) or b"0")
        if moved:
            reach(CrashPoint.SEQUENCING_AFTER_COMMIT)
            self._metrics.sequence_seconds.observe(time.perf_counter() - began)
            self._metrics.sequence_batch_events.observe(moved)
            self._metrics.sequenced.inc(moved)
            head += moved
        if head > self._head:
            self._head = head
            self._metrics.note_head(head)
            self._on_head(head)
        return moved

    def _run(
        self, connection: psycopg.Connection, ask: Callable[[], psycopg.pq.abc.PGresult]
    ) -> psycopg.pq.abc.PGresult:
        with self._owed(connection):
            result = ask()
        if connection.pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection was lost")
        if result.status not in {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}:
            raise error_from_result(result, encoding=connection.info.encoding)
        return result

    @contextmanager
    def _owed(self, connection: psycopg.Connection) -> Iterator[None]:
        """Within the context Postgres owes an answer on this connection."""
        self._waiting = time.monotonic(), connection.pgconn.socket
        try:
            yield
        finally:
            self._waiting = None

    def _observe(self, connection: psycopg.Connection) -> None:
        self._observe_at = time.monotonic() + self._settings.relay_observe_seconds
        with self._owed(connection):
            row = connection.execute(OBSERVE).fetchone()
        if row is not None:
            self._metrics.outbox_depth.set(row[0])
            self._metrics.outbox_oldest_seconds.set(max(0.0, row[1]))
