"""Mutants of `berth archive`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROWS, RUNNING = "berth/cli/deployment/archive/rows.py", "berth/cli/deployment/archive/running.py"
TESTS = ("tests/archive/test_running.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "rows are deleted that changed since they were sealed",
        "archive",
        ROWS,
        "for found, text in now if Line(str(found), text).sha256 == sealed.digests[found]]",
        "for found, text in now if text]",
        TESTS,
    ),
    Mutant(
        "two runs archive at once", "archive", RUNNING, "            if not held:\n", "            if False:\n", TESTS
    ),
    Mutant(
        "what was sealed before a crash is sealed again",
        "archive",
        RUNNING,
        "        run.resume()\n",
        "",
        ("tests/archive/test_crashes.py",),
    ),
    Mutant(
        "a segment counts with another checksum",
        "archive",
        "berth/cli/deployment/archive/chains.py",
        "if digest_of(content) != segment.sha256:",
        "if False:",
        ("tests/archive/test_judging.py",),
    ),
    Mutant(
        "an allocation is archived before its time",
        "archive",
        ROWS,
        "< clock_timestamp() - make_interval(days => %(days)s)",
        "< clock_timestamp()",
        TESTS,
    ),
    Mutant(
        "an allocation that is not metered is archived",
        "archive",
        ROWS,
        "and (a.active_at is null\n       or exists",
        "and (true\n       or exists",
        TESTS,
    ),
    Mutant(
        "a chain of the audit that does not hold is archived",
        "archive",
        "berth/cli/deployment/archive/audit_rows.py",
        "if (entry.sequence, entry.hash) != (expected.sequence, expected.hash.hex()):",
        "if False:",
        ("tests/archive/test_audit.py",),
    ),
    Mutant(
        "the proof of a cleanup leaves before its allocation",
        "archive",
        "berth/cli/deployment/archive/audit_rows.py",
        "last = due if proof is None else min(due, proof - 1)",
        "last = due",
        ("tests/archive/test_audit.py",),
    ),
    Mutant(
        "rows of the audit leave without a segment",
        "archive",
        "migrations/functions/audit/require_segment.sql",
        "where s.kind = 'audit' and s.audit_first = old.sequence + 1 and",
        "where",
        ("tests/archive/test_audit.py",),
    ),
    Mutant(
        "the newest row of the audit leaves",
        "archive",
        "migrations/functions/audit/require_segment.sql",
        "and s.audit_last < h.sequence",
        "and s.audit_last <= h.sequence",
        ("tests/archive/test_audit.py",),
    ),
    Mutant(
        "a list of the audit skips archived rows in silence",
        "archive",
        "orchestrator/audit/queries.py",
        "if after is not None:",
        "if False:",
        ("tests/audit/test_archived_rows.py",),
    ),
    Mutant(
        "rows of the last 30 days leave the audit",
        "archive",
        "migrations/functions/audit/require_segment.sql",
        "and c.recorded_at < clock_timestamp() - interval '30 days')",
        ")",
        ("tests/archive/test_audit.py",),
    ),
    Mutant(
        "an archived allocation is shown to another tenant",
        "archive",
        "orchestrator/archive/store.py",
        "or x.tenant_id = :tenant_id)",
        "or true)",
        ("tests/api/allocations/test_archived.py",),
    ),
    Mutant(
        "a tenant sees where the archive is",
        "archive",
        "orchestrator/allocations/store/missing.py",
        "if for_operator else {}",
        "if found else {}",
        ("tests/api/allocations/test_archived.py",),
    ),
    Mutant(
        "a run without its lock replaces the manifest of the next one",
        "archive",
        "berth/cli/deployment/archive/directory.py",
        "os.link(aside, path)",
        "aside.rename(path)",
        ("tests/archive/test_overtaken.py",),
    ),
    Mutant(
        "a run whose session ended seals",
        "archive",
        RUNNING,
        "        require_session(self._connection)\n",
        "",
        ("tests/archive/test_overtaken.py",),
    ),
    Mutant(
        "a run replaces an object of a bucket",
        "archive",
        "berth/cli/deployment/archive/bucket.py",
        'mode="create"',
        'mode="overwrite"',
        ("tests/archive/test_bucket.py::test_a_name_is_written_once_and_a_lost_answer_is_no_problem",),
    ),
    Mutant(
        "storage that ignores If-None-Match is used",
        "archive",
        "berth/cli/deployment/archive/bucket.py",
        'if self._create(PROBE, b""):',
        "if False:",
        ("tests/archive/test_bucket.py::test_a_failure_deletes_nothing_and_the_next_run_archives",),
    ),
    Mutant(
        "variables of other tools choose the credentials",
        "archive",
        "berth/cli/deployment/archive/bucket.py",
        "credential_provider=_provider(credentials),",
        "",
        ("tests/archive/test_bucket.py::test_an_operator_archives_to_a_bucket_and_no_secret_is_printed",),
    ),
]
