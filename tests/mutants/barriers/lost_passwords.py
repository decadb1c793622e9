"""What a restore does again of the lost interval: passwords of BMCs, and members that were removed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = "tests/restores/test_passwords_of_bmcs.py"
_KNOWN = f"{_TESTS}::test_passwords_of_the_lost_interval_are_known_again"
_OTHER = f"{_TESTS}::test_a_bmc_of_another_site_gets_no_password_of_the_lost_interval"
_ADOPT = "migrations/functions/restores/restore_adopt_passwords.sql"
_NOTE = "migrations/functions/restores/restore_note_ends.sql"
_MEMBERS = "tests/restores/test_members.py::test_a_member_removed_in_the_lost_interval_is_removed_again"
_REVOKE = "migrations/functions/restores/restore_revoke.sql"
_REPORTS = "orchestrator/sites/commands/reports.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = _KNOWN) -> Mutant:
    return Mutant(f"lost passwords: {name}", "nodes", file, old, new, (test,))


MUTANTS = (
    _mutant(
        "a BMC of another site gets one", _NOTE, "and b.site_id = (n.detail ->> 'site_id')::uuid", "", _OTHER,
    ),
    _mutant(
        "a revoked agent gets its copy", _ADOPT, "and a.site_id = stored.site_id and a.state <> 'retired'", "",
    ),
    _mutant(
        "one that may have been received counts as received", _ADOPT,
        "case when stored.given then stored.generation else b.generation end", "stored.generation",
    ),
    _mutant(
        "the password of before stays", _ADOPT, "where b.node_id = stored.node_id and c.node_id = b.node_id", "where false",
    ),
    _mutant(
        "one that was stored is not in the log", _REPORTS,
        "            await emit_password(tx, bmc.site_id, bmc.node_id, wanted, given=False)\n", "",
    ),
    _mutant(
        "one that was received is not in the log", _REPORTS,
        "        await emit_password(tx, bmc.site_id, bmc.node_id, report.generation, given=True)\n", "",
    ),
    _mutant(
        "one that an operator set is not in the log", "orchestrator/sites/commands/bmcs.py",
        "            await emit_password(tx, address.site_id, node_id, generation, given=True)\n", "",
    ),
    Mutant(
        "lost members: a removed one is back", "tenants", _REVOKE,
        "                delete from tenant_members m where m.id = left_.subject_id;\n", "", (_MEMBERS,),
    ),
    Mutant(
        "lost members: what a removed one invited is open", "tenants", _REVOKE,
        "where i.created_by = left_.subject_id::text", "where false", (_MEMBERS,),
    ),
    Mutant(
        "lost members: a revoked invitation is open", "tenants", "berth/cli/deployment/restore/lost_kinds.py",
        '    "invitation.revoke": "invitation",\n', "", (_MEMBERS,),
    ),
)  # fmt: skip
