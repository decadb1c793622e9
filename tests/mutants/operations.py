"""Mutants of these nouns: operations, database and edge."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, foreign

MUTANTS: list[Mutant] = [
    Mutant(
        "a stored operation is returned to every tenant",
        "operations",
        "orchestrator/operations/store/questions.py",
        ("created_at, retire_after\nfrom operations where scope = :scope and key = :key\n"),
        ("created_at, retire_after\nfrom operations where cast(:scope as uuid) is not null and key = :key\n"),
        (
            (
                "tests/api/tenants/test_foreign_ids.py::test_two_tenants_with_the_same_operation_key_are_each_told_of_their_own"
            ),
        ),
    ),
    Mutant(
        "operations of all tenants share one scope",
        "operations",
        "orchestrator/http/operation_keys.py",
        "        scope=principal.scope,\n",
        "        scope=uuid.UUID(int=1),\n",
        (
            foreign("POST /api/v1/ssh-keys"),
            foreign("POST /api/v1/webhooks"),
            foreign("POST /v1/commit"),
        ),
    ),
    Mutant(
        "one sweep retires one batch of operations",
        "operations",
        "worker/sweepers/retention.py",
        "        if retired < BATCH_MAX:\n",
        "        if retired <= BATCH_MAX:\n",
        ("tests/worker/test_sweeps_of_many.py::test_one_sweep_retires_several_batches_of_operations",),
    ),
    Mutant(
        "query parameters are no part of a fingerprint",
        "operations",
        "orchestrator/http/operation_keys.py",
        'return {"body": document, "query": query} if query else document',
        "return document",
        ("tests/api/operations/test_fingerprints_and_limits.py::test_the_query_is_part_of_a_writes_fingerprint",),
    ),
    Mutant(
        "every refusal is stored",
        "operations",
        "orchestrator/operations/execution.py",
        ("    if not refusal.business:\n        raise refusal\n"),
        "",
        ("tests/api/operations/test_fingerprints_and_limits.py",),
    ),
    Mutant(
        "overload is an outcome of business",
        "operations",
        "orchestrator/problems.py",
        'status, code, title = 503, "overloaded", "Overloaded"',
        'status, code, title, business = 503, "overloaded", "Overloaded", True',
        ("tests/api/operations/test_fingerprints_and_limits.py",),
    ),
    Mutant(
        "an operation's key counts for all scopes",
        "operations",
        "migrations/schema/operations.sql",
        "operation_runs_once primary key (scope, key)",
        "operation_runs_once primary key (key)",
        (
            (
                "tests/schema/test_uniqueness.py::"
                "test_a_row_that_differs_in_one_column_of_the_key_passes[operation_runs_once]"
            ),
        ),
    ),
    Mutant(
        "an operation's key has no bound",
        "operations",
        "migrations/schema/operations.sql",
        "length(key) between 1 and 255",
        "length(key) >= 1",
        (check("operations_key_check"),),
    ),
    Mutant(
        "a tombstone is any answer",
        "operations",
        "migrations/schema/operations.sql",
        "code is not null and code = 'operation_fenced'",
        "code is not null",
        (check("tombstone_is_fenced"),),
    ),
    Mutant(
        "operations have no bound",
        "operations",
        "migrations/functions/operations/count_operations.sql",
        "room_left('operations', bound) < 0",
        "room_left('operations', bound) < -1",
        ("tests/schema/test_triggers.py::test_the_bound_on_operations_is_kept_for_all_but_endings",),
    ),
    Mutant(
        "deleted operations stay counted",
        "operations",
        "migrations/functions/operations/count_operations.sql",
        "select -count(*) into changed",
        "select 0 into changed",
        ("tests/schema/test_triggers.py::test_operations_count_themselves",),
    ),
    Mutant(
        "failed statements are logged with their parameters",
        "database",
        "orchestrator/database/transactions.py",
        "            hide_parameters=True,",
        "            hide_parameters=False,",
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "an older loader restores old functions",
        "database",
        "migrations/functions/loader.py",
        "    if applied > own:\n",
        "    if False:\n",
        ("tests/schema/test_functions.py::test_a_loader_older_than_the_database_is_refused",),
    ),
    Mutant(
        "a function's arguments change",
        "database",
        "migrations/functions/loader.py",
        "    if len(found) != 1:\n",
        "    if not found:\n",
        ("tests/schema/test_functions.py::test_changed_arguments_are_refused",),
    ),
    Mutant(
        "a deprecated function is dropped at once",
        "database",
        "migrations/functions/loader.py",
        "where deprecated_in < %s",
        "where deprecated_in <= %s",
        ("tests/schema/test_functions.py::test_a_function_without_a_file_is_dropped_one_generation_later",),
    ),
    Mutant(
        "two migrations run at once",
        "database",
        "migrations/upgrading.py",
        ("            connection.execute(text(\"select pg_advisory_xact_lock(hashtext('berth.migrate'))\"))\n"),
        "",
        ("tests/schema/test_migrations.py::test_two_at_once_do_it_once",),
    ),
    Mutant(
        "a foreign database is migrated",
        "database",
        "migrations/upgrading.py",
        "        if tables:\n",
        "        if False:\n",
        ("tests/schema/test_migrations.py::test_a_foreign_database_is_refused_by_name",),
    ),
    Mutant(
        "a schema before the baseline is upgraded",
        "database",
        "migrations/upgrading.py",
        "if revision in REVISIONS_BEFORE_BASELINE:",
        "if False:",
        ("tests/schema/test_migrations.py::test_a_revision_before_the_baseline_is_refused",),
    ),
    Mutant(
        "room that was found is given twice",
        "database",
        "migrations/functions/database/room_left.sql",
        "        perform pg_advisory_xact_lock(hashtext('live_rows'), hashtext(p_kind));\n",
        "",
        ("tests/operations/test_room.py::test_the_bound_is_exact_however_many_come_at_once",),
    ),
    Mutant(
        "the log shows query parameters",
        "edge",
        "orchestrator/edge/edge.py",
        'method=scope["method"], path=scope["path"], status=status,',
        'method=scope["method"], path=scope["path"], query=scope["query_string"].decode(), status=status,',
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "a body of exactly the limit is refused by its length",
        "edge",
        "orchestrator/edge/edge.py",
        "int(length) > self._body_bytes_max",
        "int(length) >= self._body_bytes_max",
        (
            "tests/api/operations/test_fingerprints_and_limits.py::test_a_body_may_have_exactly_the_limit_and_no_byte_more",
        ),
    ),
    Mutant(
        "a body of exactly the limit is refused when it has arrived",
        "edge",
        "orchestrator/edge/edge.py",
        "if received > self._body_bytes_max:",
        "if received >= self._body_bytes_max:",
        (
            "tests/api/operations/test_fingerprints_and_limits.py::test_a_body_may_have_exactly_the_limit_and_no_byte_more",
        ),
    ),
    Mutant(
        "a body without a length has no limit",
        "edge",
        "orchestrator/edge/edge.py",
        "if received > self._body_bytes_max:",
        "if received > self._body_bytes_max + 1:",
        (
            "tests/api/operations/test_fingerprints_and_limits.py::test_a_body_may_have_exactly_the_limit_and_no_byte_more",
        ),
    ),
    Mutant(
        "what ends something is shed",
        "edge",
        "orchestrator/edge/edge.py",
        "if self._in_flight >= self._in_flight_max and not _ending(scope):",
        "if self._in_flight >= self._in_flight_max:",
        ("tests/api/test_overload.py::test_only_what_ends_something_is_never_shed",),
    ),
    Mutant(
        "requests in flight have no bound",
        "edge",
        "orchestrator/edge/edge.py",
        "if self._in_flight >= self._in_flight_max and not _ending(scope):",
        "if False:",
        ("tests/api/test_overload.py::test_only_what_ends_something_is_never_shed",),
    ),
    Mutant(
        "half a body keeps its place",
        "edge",
        "orchestrator/edge/edge.py",
        "asyncio.timeout_at(deadline)",
        "asyncio.timeout_at(None)",
        ("tests/api/test_overload.py::test_half_a_body_gives_its_place_back",),
    ),
    Mutant(
        "a request has two keys",
        "edge",
        "orchestrator/edge/edge.py",
        'if len(headers.getlist("idempotency-key")) > 1:',
        "if False:",
        (
            (
                "tests/api/operations/test_callers_and_operations.py::test_two_keys_in_one_request_are_refused_and_neither_is_used"
            ),
        ),
    ),
    Mutant(
        "a body is in any encoding",
        "edge",
        "orchestrator/edge/edge.py",
        'if b"\\0" in body or head.startswith(BYTE_ORDER_MARKS):',
        "if False:",
        ("tests/api/operations/test_callers_and_operations.py::test_a_body_is_in_utf8_without_a_mark",),
    ),
]
