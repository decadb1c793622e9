"""Mutants of the demo on emulated machines: what it takes for a proof, and what it leaves behind."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RAW = "berth/local/machines/raw_disks.py"
_RACK = "berth/local/machines/rack.py"
_TENANCIES = "berth/local/demo/machines/tenancies.py"
_RECORD = "berth/local/demo/machines/steps.py"
_COMMAND = "berth/cli/proof/machine_demo.py"
_DISKS = "tests/berth/machines/test_raw_disks.py"
_STEPS = "tests/berth/machines/test_steps.py"
_RACKED = "tests/berth/machines/test_rack.py"
_PLANTED = f"{_DISKS}::test_a_planted_marker_is_found"
_LESS = f"{_DISKS}::test_less_than_every_byte_or_more_than_none_in_use_is_no_proof"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"demo on machines: {what}", "wipes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a marker between two pieces is missed", _RAW, "before = (before + piece)[-(len(marker) - 1) :]", 'before = b""[-1:]',
        _PLANTED,
    ),
    _mutant("bytes in use are not counted", _RAW, "used += len(piece) - piece.count(0)", "used += 0", _PLANTED),
    _mutant("a disk with content is empty", _TENANCIES, "    if content.used_bytes:", "    if False:", _LESS),
    _mutant("a part of the disk is the disk", _TENANCIES, "    if content.read_bytes != DISK_BYTES:", "    if False:", _LESS),
    _mutant(
        "a part of the disk was read back", _TENANCIES, "    if known != [(DISK_SERIAL, DISK_BYTES, DISK_BYTES, False)]:",
        "    if not known:", f"{_DISKS}::test_another_disk_or_less_of_it_is_no_reported_wipe",
    ),
    _mutant(
        "the control is left out", _TENANCIES, "    if not content.has_marker:", "    if False:",
        f"{_DISKS}::test_the_control_refuses_a_disk_on_which_the_marker_was_never_seen",
    ),
    _mutant(
        "a step that did not run is proven", _RECORD, "            if left:", "            if False:",
        f"{_STEPS}::test_one_step_that_did_not_run_is_no_proof",
    ),
    _mutant(
        "a step that failed is proven", _RECORD, "if step is not None and step.why is not None:", "if False:",
        f"{_STEPS}::test_one_step_that_was_not_proven_is_no_proof",
    ),
    _mutant(
        "the better of two attempts counts", _RECORD, "return min(steps,", "return max(steps,",
        f"{_STEPS}::test_a_step_that_failed_once_is_not_proven_by_a_second_run",
    ),
    _mutant(
        "promises that were not checked are kept", _RECORD,
        "        if self.machines and not self.together:", "        if False:",
        f"{_STEPS}::test_nothing_and_no_check_of_the_promises_is_no_proof",
    ),
    _mutant(
        "what was not proven ends with code 0", _COMMAND, '    if not report["held"]:', "    if False:",
        f"{_STEPS}::test_the_table_shows_seconds_what_failed_and_what_did_not_run",
    ),
    _mutant(
        "disks stay after a failure", _RACK, "    finally:\n        shutil.rmtree(directory, ignore_errors=True)",
        "    finally:\n        pass", f"{_RACKED}::test_the_directory_is_gone_afterwards_also_after_a_failure",
    ),
]  # fmt: skip
