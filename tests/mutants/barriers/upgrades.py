"""Mutants of rolling upgrades: the schema's window, locks of migrations, messages of two versions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MIGRATIONS = "tests/schema/test_migrations.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a process that the schema no longer serves starts",
        "database",
        "berth/process/schema_window.py",
        "if oldest_process is not None and oldest_process > SCHEMA_REVISION:",
        "if False:",
        (
            "tests/api/test_process.py::test_a_schema_that_serves_later_processes_only_is_reported",
            "tests/outbox_relay/test_schema_window.py",
        ),
    ),
    Mutant(
        "the relay publishes from a schema that does not serve it",
        "database",
        "outbox_relay/postgres.py",
        '            revision, await _value(connection, "select oldest_process from function_generation")\n',
        "            revision, None\n",
        ("tests/outbox_relay/test_schema_window.py",),
    ),
    Mutant(
        "a migration waits for a lock without a bound",
        "database",
        "migrations/upgrading.py",
        "select set_config('lock_timeout', :lock_ms, true),",
        "select :lock_ms,",
        (f"{_MIGRATIONS}::test_a_waiting_revision_gives_way_to_requests_and_keeps_no_lock_of_the_one_before",),
    ),
    Mutant(
        "an upgrade is one transaction",
        "database",
        "migrations/upgrading.py",
        "if current is None or current == target:",
        "if True:",
        (f"{_MIGRATIONS}::test_an_interrupted_upgrade_goes_on_at_the_revision_that_it_reached",),
    ),
    Mutant(
        "a revision names no lock",
        "database",
        "migrations/versions/from_0032/r0048_schema_window.py",
        'LOCKS = ("function_generation",)',
        "LOCKS = ()",
        ("tests/upgrade/test_locks.py",),
    ),
]
