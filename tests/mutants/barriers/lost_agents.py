"""Agents of sites after a restore: what was issued to them and what was revoked of them in the lost interval."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = "tests/restores/test_agents_of_sites.py"
_LOST = f"{_TESTS}::test_a_renewed_agent_is_let_in_and_one_that_was_revoked_is_revoked_again"
_ADOPT = "migrations/functions/restores/restore_adopt_agents.sql"
_REVOKE = "migrations/functions/restores/restore_revoke_agents.sql"
_NOTE = "migrations/functions/restores/restore_note_ends.sql"
_AGENTS = "orchestrator/sites/commands/agents.py"


def _mutant(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(f"lost agents: {name}", "nodes", file, old, new, (_LOST,))


MUTANTS = (
    _mutant(
        "a certificate of another epoch is adopted", _NOTE, "and g.epoch = (n.detail ->> 'epoch')::bigint", "",
    ),
    _mutant(
        "certificates of agents are refused", _ADOPT, "        adopts := found;", "        adopts := false;",
    ),
    _mutant(
        "a revoked agent is let in", _REVOKE, "where c.agent_id = agent and c.revoked_at is null", "where false",
    ),
    _mutant(
        "a token of a revoked agent counts", _REVOKE, "set state = 'retired', row_version", "set row_version",
    ),
    _mutant(
        "a token of before counts after the next invitation", _REVOKE,
        "    delete from site_agent_tokens t where t.used_at is null;\n", "",
    ),
    _mutant(
        "a suspension is not in the log", _AGENTS,
        '        await _announce(tx, EventType.SITE_IDENTITY_CONFLICT, agent_id, {"agent_id": agent_id, **said}, request_id)\n',
        "",
    ),
    _mutant(
        "a revocation is not in the log", _AGENTS,
        "        await _announce(tx, EventType.SITE_AGENT_REVOKED, agent_id, payload, operation.request_id)\n", "",
    ),
    _mutant(
        "an enrolment is not in the log", _AGENTS,
        '    await _announce(tx, EventType.SITE_AGENT_ENROLLED, agent_id, {"agent_id": agent_id, **said}, request_id)\n', "",
    ),
    Mutant(
        "lost agents: a token of a revoked agent counts without a restore", "nodes", "orchestrator/sites/store/agents.py",
        '    await tx.execute(_FORGET_TOKENS, {"id": agent_id})\n', "",
        (f"{_TESTS}::test_no_token_of_a_revoked_agent_counts_after_its_next_invitation",),
    ),
)  # fmt: skip
