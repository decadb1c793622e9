"""Mutants of what tenants and operators learn of a restore, and of what protects the keys that it needs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOSSES = (
    "tests/restores/test_losses_of_tenants.py::test_each_tenant_receives_each_of_its_losses_and_none_of_another_tenant"
)


def _mutant(name: str, noun: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"restore: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a tenant gets the losses of every tenant",
        "database",
        "migrations/functions/restores/restore_report_losses.sql",
        "join tenants t on t.id = page.tenant_id and",
        "join tenants t on",
        _LOSSES,
    ),
    _mutant(
        "losses are reported again by a repeated export",
        "database",
        "migrations/functions/restores/restore_report_losses.sql",
        "    if p_anew then",
        "    if false then",
        _LOSSES,
    ),
    _mutant(
        "a tenant gets an operator's idempotency key",
        "client",
        "berth/cli/deployment/restore/tenant_reports.py",
        '    if line["own"]:',
        "    if True:",
        _LOSSES,
    ),
    _mutant(
        "an event has any number of losses",
        "client",
        "berth/cli/deployment/restore/tenant_reports.py",
        "== PAGE_LOSSES_MAX:",
        "== 10**9:",
        _LOSSES,
    ),
    _mutant(
        "a token that was used in the lost interval enrols again",
        "nodes",
        "migrations/functions/restores/restore_revoke.sql",
        "    delete from enrolment_tokens t where t.used_at is null;\n",
        "",
        "tests/restores/test_first_enrolments.py"
        "::test_a_node_that_first_enrolled_in_the_lost_interval_enrols_again_without_an_export",
    ),
    _mutant(
        "the doctor forgets how old the status of a stream is",
        "backup",
        "berth/cli/deployment/backup/findings.py",
        "status.lag_seconds + silent >",
        "status.lag_seconds >",
        "tests/backup/test_doctor.py",
    ),
    _mutant(
        "the escrow of a site's key counts as one of the key files",
        "backup",
        "berth/cli/deployment/backup/escrow.py",
        'startswith((".", SITE_PREFIX))',
        'startswith(".")',
        "tests/backup/test_site_keys.py",
    ),
]
