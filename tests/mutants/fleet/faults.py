"""Mutants of fault reports: quarantine at release, replacements, bounds."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLAIMS = "orchestrator/allocations/store/claims.py"
_RULES = "orchestrator/allocations/rules.py"
_STORE = "orchestrator/allocations/store/faults.py"
_COMMANDS = "orchestrator/allocations/commands/faults.py"
_QUARANTINE = "migrations/functions/allocations/quarantine_reported_units.sql"
_PLACE = "migrations/functions/allocations/place_replacement.sql"
_OF_REPORTS = "tests/faults/test_reports.py"
_OF_REPLACEMENTS = "tests/faults/test_replacements.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"faults: {name}", "allocations", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "the release frees reported units", _CLAIMS, "quarantine_reported_units(:allocation_id), ", "",
        f"{_OF_REPORTS}::test_the_units_are_never_free_between_release_and_quarantine",
    ),
    _mutant(
        "the slots stay in service", _QUARANTINE, "    perform keep_slots_v2(reported);\n", "",
        f"{_OF_REPORTS}::test_a_report_marks_the_units_and_their_release_quarantines_them",
    ),
    _mutant(
        "the faulty one is released before the other is active", _RULES,
        "    if new is AllocationState.ACTIVE:\n", "    if new is not AllocationState.FAILED:\n",
        f"{_OF_REPLACEMENTS}::test_the_faulty_allocation_stays_until_the_replacement_is_active",
    ),
    _mutant(
        "a wait without an end", _RULES, "ReplacementOutcome.OVERDUE if overdue else None", "None",
        f"{_OF_REPLACEMENTS}::test_the_wait_ends_at_its_deadline_and_both_stay",
    ),
    _mutant(
        "the quota does not count the replacement", _PLACE, "q.gpus_used + old_.gpus", "q.gpus_used",
        f"{_OF_REPLACEMENTS}::test_the_quota_counts_both_and_its_limit_lets_the_replacement_in",
    ),
    _mutant(
        "the same node comes first", _PLACE, "array[old_.node_id], 'skip'", "array[]::uuid[], 'skip'",
        f"{_OF_REPLACEMENTS}::test_the_replacement_takes_over_when_it_is_active",
    ),
    _mutant(
        "two replacements of one allocation", _RULES, "    if replace and replacing:\n", "    if False:\n",
        f"{_OF_REPLACEMENTS}::test_a_failed_replacement_leaves_the_old_allocation_and_another_may_follow",
    ),
    _mutant(
        "reports without a bound in a day", _COMMANDS,
        "if await store.is_rate_reached(tx, subject.tenant_id, limit):", "if False:",
        f"{_OF_REPORTS}::test_a_tenants_reports_of_a_day_are_bounded_also_at_once",
    ),
    _mutant(
        "the list of a tenant holds all reports", _STORE,
        "fault_reports.c.tenant_id == tenant_id", "fault_reports.c.tenant_id.is_not(None)",
        f"{_OF_REPORTS}::test_a_tenant_reads_its_own_reports_and_no_other",
    ),
    _mutant(
        "a tenant reads the report of another", "orchestrator/allocations/fault_queries.py",
        " or tenant_id not in (None, found.tenant_id)", "",
        f"{_OF_REPORTS}::test_a_tenant_reads_its_own_reports_and_no_other",
    ),
    _mutant(
        "open reports are deleted", _STORE, "where closed_at < (select", "where reported_at < (select",
        f"{_OF_REPORTS}::test_closed_reports_are_deleted_after_their_retention_and_open_ones_stay",
    ),
]  # fmt: skip
