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
_FIRMWARE = "orchestrator/nodes/firmware/rules.py"
_FIRMWARE_RULES = "tests/nodes/test_firmware_rules.py"
_RELEASED = "tests/sites/renting/test_firmware.py"
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
        "when :step not in ('end', 'rotate', 'to_provisioning', 'to_tenant') then attempts",
        "when :step not in ('end', 'to_provisioning', 'to_tenant') then attempts",
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
    _release(
        "firmware is not compared",
        _RUNS,
        "        findings += await firmware.objected(tx, run)",
        "        pass",
        f"{_RELEASED}::test_a_bios_that_changed_during_the_tenancy_keeps_the_node",
    ),
    _release(
        "the firmware that the BMC named at the inspection is forgotten",
        _RUNS,
        "        await firmware.note_inspected(tx, run)",
        "        pass",
        f"{_RELEASED}::test_a_bmc_whose_firmware_changed_during_the_tenancy_keeps_the_node",
    ),
    _release(
        "firmware is part of the report that earlier versions read",
        "orchestrator/nodes/deploy_systems/store.py",
        'report.model_copy(update={"firmware": None}).canonical()',
        "report.canonical()",
        f"{_RELEASED}::test_an_inspection_records_what_deploy_system_and_bmc_read",
    ),
    _release(
        "a description from before the run counts as read after the tenancy",
        "orchestrator/sites/firmware.py",
        " or found.looked_at < since",
        "",
        f"{_RELEASED}::test_an_agent_and_a_medium_of_the_version_before_change_nothing",
    ),
    _release(
        "a source that reported nothing has changed everything",
        _FIRMWARE,
        "    if before is None or after is None:",
        "    if before is None:\n        return []\n    after = after or ()\n    if False:",
        f"{_FIRMWARE_RULES}::test_what_no_source_reported_is_no_change",
    ),
    _release(
        "a version that is not stated any more is no change",
        _FIRMWARE,
        "        if now.get((component, unit)) != versions",
        "        if now.get((component, unit), versions) != versions",
        f"{_FIRMWARE_RULES}::test_another_version_and_a_version_that_is_not_stated_any_more_are_changes",
    ),
    _release(
        "a part that the list does not name is objected to",
        _FIRMWARE,
        "        if naming and not any(",
        "        if not any(",
        f"{_FIRMWARE_RULES}::test_a_part_that_the_list_does_not_name_is_compared_with_the_inspection_alone",
    ),
    _release(
        "a listed BMC may stay silent",
        _FIRMWARE,
        "    missing = {entry.component",
        "    missing = set[str]() and {entry.component",
        f"{_FIRMWARE_RULES}::test_a_listed_bios_or_bmc_that_was_not_read_is_objected_to",
    ),
    _release(
        "an inventory that a BMC did not give has changed",
        _FIRMWARE,
        "if one.component in given]",
        "]",
        f"{_FIRMWARE_RULES}::test_a_part_of_its_description_that_a_bmc_did_not_give_is_no_change",
    ),
    _release(
        "objections are not bounded",
        _FIRMWARE,
        "    if len(found) <= OBJECTIONS_MAX:",
        "    if True:",
        f"{_FIRMWARE_RULES}::test_objections_are_bounded",
    ),
    _release(
        "the versions make the report of a wipe too large",
        "node_agent/deploy_system/effects/wiping.py",
        "    if len(report.canonical()) <= REPORT_BYTES_MAX:",
        "    if True:",
        "tests/deploy_system/effects/test_firmware.py::test_the_proof_of_a_wipe_comes_before_the_versions",
    ),
    _release(
        "a BMC that does not describe its machine fails the end",
        "node_agent/site/boots.py",
        "    except (BmcProblem, TimeoutError):",
        "    except TimeoutError:",
        f"{_RELEASED}::test_a_description_that_fails_does_not_fail_the_end",
    ),
]
