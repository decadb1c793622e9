"""Mutants of runs that wipe a machine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ORDERS = "orchestrator/nodes/deploy_systems/wipe_orders.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_BOOTS = "orchestrator/sites/boots.py"
_TESTS = "tests/sites/test_wipes.py"
_REFUSED = f"{_TESTS}::test_a_wipe_is_refused_unless_the_inspection_names_everything"
_WHOLE = f"{_TESTS}::test_a_wipe_erases_every_disk_of_the_inspection_and_shows_the_proof"


def _mutant(what: str, file: str, old: str, new: str, test: str, area: str = "nodes") -> Mutant:
    return Mutant(f"metal wipes: {what}", area, file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant("hidden disks are left", _ORDERS, "    if report.storage_without_driver:", "    if False:", _REFUSED),
    _mutant("a machine without disks is wiped", _ORDERS, "    if not disks:", "    if disks is None:", _REFUSED),
    _mutant("a disk of two is wiped", _ORDERS, "        if identity.serial in found:", "        if False:", _REFUSED),
    _mutant("the TPM is left", _ORDERS, "report.topology.tpm is not None", "False", _WHOLE),
    _mutant("a machine is wiped in a maintenance window", _RUNS, "writing=order.kind is RunKind.WIPE", "writing=False", _REFUSED),
    _mutant(
        "an open run of another kind is the answer", _RUNS, "known is not None and known.kind is order.kind", "known is not None",
        _REFUSED,
    ),
    _mutant(
        "another machine than the inspected one is wiped", _RUNS, "    if order.smbios_uuid not in (None, known.smbios_uuid):",
        "    if False:", _REFUSED,
    ),
    _mutant(
        "every task has the time of an inspection", _BOOTS, '"seconds_max": run.work_seconds',
        '"seconds_max": RUN_SECONDS_MAX', _WHOLE,
    ),
    _mutant(
        "a hello is waited for as long as its disks need", _BOOTS, '"hello_seconds_max": RUN_SECONDS_MAX, ',
        "", f"{_TESTS}::test_a_hello_of_a_wipe_is_not_waited_for_as_long_as_its_disks_need",
    ),
    _mutant(
        "the certificate ends before a large disk is erased", _BOOTS,
        "certificate_seconds(run.work_seconds)",
        "2 * RUN_SECONDS_MAX", _WHOLE,
    ),
    _mutant(
        "a failed wipe is shown as proven", "orchestrator/sites/queries.py", 'outcome == "completed"', "True",
        f"{_TESTS}::test_a_wipe_with_an_unproven_disk_is_a_failed_run_with_its_evidence",
    ),
    _mutant(
        "a wipe has no bound", "orchestrator/nodes/deploy_systems/run_rules.py", "min(WIPE_SECONDS_MAX, int(seconds) + 1)",
        "int(seconds) + 1", f"{_TESTS}::test_every_time_of_a_wipe_is_bounded",
    ),
    _mutant(
        "`berth node wipe` asks for no confirmation", "berth/cli/fleet/deploy_systems.py", "    if not yes:", "    if False:",
        "tests/cli/test_run_commands.py::test_a_wipe_is_requested_with_a_confirmation_alone", "client",
    ),
    _mutant(
        "what a failed wipe has done is not reported", "node_agent/deploy_system/work/wiping.py", "        failure.evidence =",
        "        _ =", "tests/deploy_system/work/test_wipes.py::test_what_is_left_after_the_overwrite_fails_closed", "agent",
    ),
]  # fmt: skip
