"""Mutants of the orderly stop, and of what happens to a statement whose caller leaves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WAITS = "tests/database/unconfirmed/test_cancelled_waits.py"
_LEFT = f"{_WAITS}::test_a_commit_that_its_caller_leaves_is_not_cancelled"
_STOPPED = f"{_WAITS}::test_a_stopped_process_cancels_no_commit_and_its_clients_get_their_answers"
_STOPPING = "tests/api/stopping/test_stopping.py"
_IN_FLIGHT = f"{_STOPPING}::test_requests_in_flight_are_answered_by_a_process_that_stops"
_QUEUED = f"{_STOPPING}::test_connections_that_only_the_kernel_has_accepted_are_answered"
_HALF = f"{_STOPPING}::test_a_head_that_is_half_sent_is_answered_after_the_signal"
_IDLE = f"{_STOPPING}::test_idle_connections_end_without_a_reset_and_hold_up_no_stop"
_BOUNDS = "tests/api/stopping/test_bounds.py"
_CONNECTION = "berth/process/database_connections.py"
_PROTOCOL = "orchestrator/edge/connections.py"

_RESTARTED = "tests/database/unconfirmed/test_restarted_primary.py"
_ONCE = f"{_RESTARTED}::test_a_commit_that_only_the_primary_has_is_acknowledged_once_a_standby_has_it"
_SOCKETS = "tests/log/test_notifications.py::test_a_kill_between_loses_nothing_and_a_stop_closes_with_its_code"

MUTANTS: list[Mutant] = [
    Mutant(
        "what a restarted primary shows is acknowledged before a standby has it",
        "database",
        "orchestrator/database/transactions.py",
        "            await require_confirmed(connection, answer_seconds_max)\n",
        "",
        (f"{_ONCE}[restarted]",),
    ),
    Mutant(
        "what a recovered primary shows is acknowledged before a standby has it",
        "database",
        "orchestrator/database/unconfirmed_commits.py",
        "    select pg_postmaster_start_time(), stats_reset,",
        "    select pg_postmaster_start_time(), 1,",
        (f"{_ONCE}[recovered]",),
    ),
    Mutant(
        "sockets are closed by a stop before their last message",
        "edge",
        "orchestrator/edge/accepting.py",
        "            if isinstance(connection, BoundedHttpProtocol):  # a socket gets its last message first\n",
        "            if connection is not None:\n",
        (_SOCKETS,),
    ),
    Mutant(
        "a statement whose task is cancelled is cancelled in PostgreSQL",
        "database",
        _CONNECTION,
        "return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)",
        "return await psycopg.AsyncConnection.wait(self, gen)",
        (f"{_LEFT}[call-cancelled]",),
    ),
    Mutant(
        "a process that stops keeps its callers waiting for statements that are not answered",
        "edge",
        _CONNECTION,
        "    for connection in owed:\n        connection.abandon()\n    return len(owed)\n",
        "    return len(owed)\n",
        (_STOPPED, f"{_LEFT}[call-abandoned]"),
    ),
    Mutant(
        "connections are reset with the listening socket",
        "edge",
        "orchestrator/edge/accepting.py",
        "        drop_new(listening)\n        await asyncio.sleep(UNDER_WAY_SECONDS)\n        self._accepting.cancel()\n"
        "        await asyncio.wait([self._accepting])\n        with suppress(OSError):\n"
        "            while True:\n                self._accept_one(listening)\n",
        "        self._accepting.cancel()\n        await asyncio.wait([self._accepting])\n"
        "        await asyncio.sleep(UNDER_WAY_SECONDS)\n",
        (_QUEUED,),
    ),
    Mutant(
        "a half sent head is dropped when the process stops",
        "edge",
        _PROTOCOL,
        "        if not self._head_done:\n            self._stop_timer =",
        "        if False:\n            self._stop_timer =",
        (_HALF,),
    ),
    Mutant(
        "idle connections hold up the stop",
        "edge",
        _PROTOCOL,
        "            self._stop_timer = self.loop.call_later(STOPPING_IDLE_SECONDS, self._end_idle)\n        else:\n",
        "            pass\n        else:\n",
        (_IDLE,),
    ),
    Mutant(
        "responses of a process that stops keep their connection",
        "edge",
        _PROTOCOL,
        "            if self._stopping:\n                self.cycle.keep_alive = False\n",
        "",
        (_HALF,),
    ),
    Mutant(
        "requests have less time than a commit after the signal",
        "edge",
        "orchestrator/settings.py",
        '        15, ge=0, description="how long requests may run on',
        '        3, ge=0, description="how long requests may run on',
        (f"{_BOUNDS}::test_a_commit_that_was_sent_before_the_signal_is_answered",),
    ),
]
