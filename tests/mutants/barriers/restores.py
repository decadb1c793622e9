"""Mutants of restores: what serves while one is open."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GATE = "tests/restores/test_gate.py"


def _mutant(name: str, noun: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"restore: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "new connections are not refused",
        "database",
        "berth/process/database_connections.py",
        "                    if cls.serves:\n                        await require_no_restore(connection)\n",
        "",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "sessions of before go on",
        "database",
        "migrations/functions/restores/restore_end_sessions.sql",
        "            perform pg_terminate_backend(pid);\n",
        "",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "sessions that remain are not noticed",
        "database",
        "migrations/functions/restores/restore_end_sessions.sql",
        "coalesce(a.backend_type, 'client backend') = 'client backend'",
        "a.backend_type = 'client backend'",
        f"{_GATE}::test_sessions_that_may_not_be_ended_keep_the_restore_from_going_on",
    ),
    _mutant(
        "the relay sequences",
        "relay",
        "outbox_relay/sequencing.py",
        "                    require_no_restore_now(connection)\n",
        "",
        f"{_GATE}::test_the_relay_sequences_and_publishes_nothing_until_the_restore_is_closed",
    ),
    _mutant(
        "it is called a lost database",
        "database",
        "orchestrator/database/sqlstates.py",
        "if isinstance(error.orig, RestoreOpen):",
        "if False:",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "a worker gives up",
        "worker",
        "worker/startup.py",
        "if restore_behind(error) is not None:",
        "if False:",
        f"{_GATE}::test_a_worker_waits_for_the_end_of_a_restore_longer_than_for_a_database",
    ),
    _mutant(
        "a second one is opened beside the first",
        "database",
        "migrations/functions/restores/restore_begin.sql",
        "    perform from log_head for update;\n",
        "",
        f"{_GATE}::test_one_restore_is_open_however_often_it_is_begun",
    ),
]
