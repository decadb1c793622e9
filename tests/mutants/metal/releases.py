"""Mutants of the release of a machine: the rotation of its BMC's password, and what is found on the machine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/nodes/deploy_systems/run_rules.py"
_RUN_STORE = "orchestrator/nodes/deploy_systems/run_store.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_QUARANTINES = "orchestrator/nodes/store/quarantines.py"
_RULE_TESTS = "tests/sites/renting/test_run_rules.py"
_ROTATIONS = "tests/sites/renting/test_rotations.py"
_ENDS = f"{_RULE_TESTS}::test_a_rotation_ends_whatever_happens_and_fails_no_release"
_ROTATED = f"{_ROTATIONS}::test_a_release_rotates_the_password_once_the_machine_is_off"
_QUARANTINED = f"{_ROTATIONS}::test_a_rotation_that_fails_ends_the_release_in_quarantine"
_REFUSED = f"{_ROTATIONS}::test_what_another_attempt_cannot_help_is_not_repeated"


def _release(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"metal releases: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _release(
        "no password is rotated",
        _RULES,
        "return Move.ROTATE if run.rotates else Move.CLOSE",
        "return Move.CLOSE",
        _ROTATED,
    ),
    _release(
        "a BMC that is set not to rotate is rotated",
        _RUN_STORE,
        "coalesce(m.rotates_at_release, false) as rotates",
        "m.node_id is not null as rotates",
        f"{_ROTATIONS}::test_a_bmc_that_is_set_not_to_rotate_keeps_its_password",
    ),
    _release(
        "a rotation is tried for ever",
        _RULES,
        "    if run.attempts < ROTATION_ATTEMPTS_MAX and why",
        "    if why",
        _ENDS,
    ),
    _release(
        "attempts of a rotation are not counted",
        _RUN_STORE,
        "when :step not in ('end', 'rotate') then attempts",
        "when :step <> 'end' then attempts",
        _QUARANTINED,
    ),
    _release(
        "a rotation that failed is no finding",
        _RULES,
        'Next(Move.CLOSE, finding=f"{FindingCode.BMC_ROTATION_FAILED}: {why}")',
        "Next(Move.CLOSE)",
        _QUARANTINED,
    ),
    _release(
        "a rotation that failed fails the release",
        _RULES,
        'Next(Move.CLOSE, finding=f"{FindingCode.BMC_ROTATION_FAILED}: {why}")',
        'Next(Move.CLOSE, f"{FindingCode.BMC_ROTATION_FAILED}: {why}")',
        _ENDS,
    ),
    _release(
        "a refused login is repeated until the account is locked",
        _RULES,
        'frozenset({"bmc_credentials_refused", "bmc_not_supported"})',
        "frozenset[str]()",
        _REFUSED,
    ),
    _release(
        "a finding leaves the node in service",
        _RUNS,
        "    if findings:\n        await quarantine",
        "    if False:\n        await quarantine",
        _QUARANTINED,
    ),
    _release(
        "a slot in quarantine hides what was found",
        _QUARANTINES,
        "set evidence = right(concat_ws(E'\\\\n', evidence, cast(:evidence as text)), :length_max)",
        "set evidence = right(concat_ws(E'\\\\n', evidence, left(cast(:evidence as text), 0)), :length_max)",
        f"{_ROTATIONS}::test_a_slot_that_is_in_quarantine_gets_the_evidence",
    ),
    _release(
        "a force-cleanup does not wait for an agent that changes the password",
        _RULES,
        "return Next(Move.CLOSE) if run.is_stopped and not part.is_signed else None",
        "return Next(Move.CLOSE) if run.is_stopped else None",
        f"{_ROTATIONS}::test_a_force_cleanup_waits_for_no_rotation_that_has_not_begun",
    ),
    _release(
        "an unproven wipe rotates",
        _RULES,
        "return Next(Move.CLOSE if run.failure is not None or run.is_stopped else _after_good_end(run))",
        "return Next(_after_good_end(run))",
        f"{_RULE_TESTS}::test_a_proven_wipe_of_a_release_alone_is_followed_by_a_rotation",
    ),
]
