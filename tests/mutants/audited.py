"""Mutants of the audit: rows, the queue before them, and the chain behind them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import pages

RECORDED = "tests/audit/test_recorded.py"
RECORDER = "tests/audit/test_recorder.py"
BATCHES = "tests/audit/test_repeated_batches.py"
CHAIN = "tests/audit/test_chain.py"
REVISION = "migrations/versions/r0016_audit_chain.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "the audit repeats an entry",
        "audit",
        "orchestrator/audit/store.py",
        "where sequence > :after\n",
        "where sequence >= :after\n",
        (pages("/api/v1/admin/audit "),),
    ),
    Mutant(
        "a concluded operation leaves no row",
        "audit",
        REVISION,
        "when (old.status is null and new.status is not null)",
        "when (old.status is null and new.status is null)",
        (f"{RECORDED}::test_a_performed_write_leaves_one_row_and_its_repetition_none",),
    ),
    Mutant(
        "a stored refusal leaves no row",
        "audit",
        REVISION,
        "when (new.status is not null and new.fingerprint is not null)",
        "when (new.status is not null and new.fingerprint is null)",
        (f"{RECORDED}::test_creates_of_a_batch_leave_one_row_each",),
    ),
    Mutant(
        "the chain skips rows that commit late",
        "audit",
        "migrations/functions/audit/audit_advance.sql",
        "from (select p as one from audit_pending p order by",
        "from (select p as one from audit_pending p where p.id > coalesce((select max(c.id) from audit_chain c), 0) order by",
        (f"{CHAIN}::test_a_row_that_commits_late_is_chained_late_and_none_is_skipped",),
    ),
    Mutant(
        "a tenant reads other tenants' rows",
        "audit",
        "orchestrator/audit/endpoints.py",
        "query.filter(caller.tenant_id)",
        "query.filter(None)",
        ("tests/audit/test_lists.py::test_a_tenant_reads_its_own_rows_alone",),
    ),
    Mutant(
        "rows of the chain can be changed",
        "audit",
        REVISION,
        "audit_chain_keeps before update or delete or truncate",
        "audit_chain_keeps before delete or truncate",
        ("tests/schema/test_triggers.py::test_rows_that_never_change_are_neither_changed_nor_deleted",),
    ),
    Mutant(
        "rows can be deleted before they are in the chain",
        "audit",
        "migrations/functions/audit/require_chained.sql",
        "    if removed <> (",
        "    if false and removed <> (",
        (CHAIN,),
    ),
    Mutant(
        "queued rows of a failed write are dropped",
        "audit",
        "orchestrator/http/audited/recorder.py",
        "                    raise\n                except Exception as error:",
        "                    self._batch_rows = []\n                    raise\n                except Exception as error:",
        (f"{RECORDER}::test_rows_wait_while_the_database_refuses_them_and_are_written_once",),
    ),
    Mutant(
        "a batch is stored again when its outcome is unknown",
        "audit",
        "orchestrator/audit/store.py",
        " where b.batch < excluded.batch\n",
        "\n",
        (f"{BATCHES}::test_a_batch_that_was_committed_without_a_response_is_stored_once",),
    ),
    Mutant(
        "a cancelled batch is dropped",
        "audit",
        "orchestrator/http/audited/recorder.py",
        "                except Exception as error:",
        "                except BaseException as error:",
        (f"{BATCHES}::test_a_write_that_is_cancelled_before_its_commit_is_repeated",),
    ),
    Mutant(
        "each batch has the id of a new process",
        "audit",
        "orchestrator/http/audited/recorder.py",
        "record_requests(tx, self._batch_rows, self._id,",
        "record_requests(tx, self._batch_rows, uuid4(),",
        (f"{BATCHES}::test_a_batch_waits_for_its_first_transaction_and_is_stored_once",),
    ),
    Mutant(
        "the numbers of ended processes stay",
        "audit",
        "orchestrator/http/audited/recorder.py",
        "if self._batch_number == 1:",
        "if False:",
        (f"{BATCHES}::test_the_table_of_batches_has_one_row_for_each_process_of_seven_days",),
    ),
    Mutant(
        "the queue of refusals has no bound",
        "audit",
        "orchestrator/http/audited/recorder.py",
        "if len(self._rows) >= QUEUE_MAX:",
        "if False:",
        (f"{RECORDER}::test_queued_rows_are_written_in_their_order_and_what_is_beyond_the_bound_is_counted",),
    ),
    Mutant(
        "each stranger has a row",
        "audit",
        "orchestrator/http/audited/strangers.py",
        "self._sources.most_common(ROWS_MAX)",
        "self._sources.most_common()",
        (f"{RECORDER}::test_a_minute_of_strangers_is_a_bounded_number_of_rows_with_the_whole_count",),
    ),
    Mutant(
        "a read refused with 403 leaves no row",
        "audit",
        "orchestrator/edge/audited_requests.py",
        'scope["method"] not in SAFE_METHODS or status == FORBIDDEN',
        'scope["method"] not in SAFE_METHODS',
        (f"{RECORDED}::test_a_refused_read_and_a_privileged_one_are_recorded",),
    ),
]
