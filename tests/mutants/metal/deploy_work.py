"""Mutants of the deploy system's work on disks, and of the media that boot it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORK = "node_agent/deploy_system/effects"
_TESTS = "tests/deploy_system/effects"
_WIPES = f"{_TESTS}/test_wipes.py"
_DEPLOYS = f"{_TESTS}/test_deploys.py"
_SEEN = f"{_TESTS}/test_inspection.py"
_SWTPM = "tests/api/nodes/attestation/test_swtpm.py"
_SERVER = "tests/media/test_server.py"
_MEDIA = "tests/media/test_media.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name=name, noun="agent", file=file, old=old, new=new, tests=(test,))


MUTANTS = [
    _mutant(
        "an erase tool's success is believed", f"{_WORK}/erasing.py",
        "                found.nonzero = True\n", "",
        f"{_WIPES}::test_a_tool_that_reports_success_and_erases_nothing_is_not_believed",
    ),
    _mutant(
        "planted markers are not searched for", f"{_WORK}/erasing.py",
        "    found.markers += len(seen)\n", "",
        f"{_WIPES}::test_a_crypto_erase_that_did_nothing_is_no_purge",
    ),
    _mutant(
        "disks that the task does not name are wiped over", f"{_WORK}/disks.py",
        "    if unknown := [str(disk) for key, disk in here.items() if key not in wanted]:", "    if unknown := list[str]():",
        f"{_WIPES}::test_other_disks_than_expected_fail_before_a_byte_is_written",
    ),
    _mutant(
        "a controller without a driver hides nothing", f"{_WORK}/disks.py",
        "    if hidden := storage_without_driver(host):", "    if hidden := list[str]():",
        f"{_WIPES}::test_a_controller_without_a_driver_fails_closed",
    ),
    _mutant(
        "the world-wide name comes before the unit serial", f"{_WORK}/disks.py",
        'return plain or unit[:64].strip() or tree.line(f"{block}/device/wwid") or ""',
        'return plain or tree.line(f"{block}/device/wwid") or unit[:64].strip() or ""',
        f"{_SEEN}::test_the_unit_serial_comes_before_the_world_wide_name",
    ),
    _mutant(
        "what is left after the overwrite is a proof", f"{_WORK}/erasing.py",
        '    attempts.append(WipeAttempt(method=OVERWRITE, accepted=True))\n    found = _look(host, progress, disk, markers)\n'
        "    if found.nonzero:\n",
        '    attempts.append(WipeAttempt(method=OVERWRITE, accepted=True))\n    found = _look(host, progress, disk, markers)\n'
        "    if False:\n",
        f"{_WIPES}::test_what_is_left_after_the_overwrite_fails_closed",
    ),
    _mutant(
        "a TPM's own word is not asked for", f"{_WORK}/trusted_module.py",
        "    if owned or owner_keys or len(said) == 2:", "    if len(said) == 2:",
        f"{_WIPES}::test_a_tpm_is_cleared_when_it_reports_that_itself",
    ),
    _mutant(
        "the image is not compared after it was written", f"{_WORK}/deploying.py",
        "    if digest.hexdigest() != written:", "    if not written:",
        f"{_DEPLOYS}::test_what_the_disk_does_not_keep_is_found_and_does_not_boot",
    ),
    _mutant(
        "another image than the one named is booted", f"{_WORK}/deploying.py",
        "    if source.sha256 != parameters.image.sha256:", "    if not source.sha256:",
        f"{_DEPLOYS}::test_an_image_that_is_not_what_was_named_leaves_nothing_that_boots",
    ),
    _mutant(
        "the partition table is written first", f"{_WORK}/deploying.py",
        "        if at == 0:\n            head = piece\n        else:\n            disk.write(at, piece)",
        "        if at == 0:\n            head = piece\n        disk.write(at, piece)",
        f"{_DEPLOYS}::test_the_first_megabyte_is_written_last",
    ),
    _mutant(
        "the primary partition table is written before its backup", f"{_WORK}/partitions.py",
        "    _write(disk, (last_usable + 1) * sector, entries)\n",
        "    _write(disk, gpt.entries_at * sector, entries)\n"
        "    _write(disk, (last_usable + 1) * sector, entries)\n",
        f"{_DEPLOYS}::test_a_gpt_is_whole_at_every_write",
    ),
    _mutant(
        "a range shows the placeholder", "node_agent/media/medium.py",
        "        if first < last:\n", "        if start <= self._configuration_at and first < last:\n",
        f"{_MEDIA}::test_every_range_is_that_of_the_machines_own_medium",
    ),
    _mutant(
        "a medium is served after its time", "node_agent/media/publications.py",
        "        if found is not None and self._monotonic() >= found.expires_at:", "        if found is not None and not path:",
        f"{_MEDIA}::test_a_path_ends_with_its_time_and_when_it_is_withdrawn",
    ),
    _mutant(
        "a reader that takes nothing keeps its connection", "node_agent/media/server.py",
        "            await asyncio.wait_for(self._writer.drain(), self._limits.chunk_seconds)",
        "            await self._writer.drain()",
        f"{_SERVER}::test_a_reader_that_takes_nothing_is_cut_off_and_others_are_served",
    ),
    _mutant(
        "a TPM in lockout keeps its deploy system out", "node_agent/attestation/tpm.py", "if not self._ends_lockout or",
        "if True or",
        f"{_SWTPM}::test_a_deploy_system_ends_the_lockout_that_a_tenant_has_left_and_a_node_does_not",
    ),
    _mutant(
        "an agent of a node ends the lockout of its TPM", "node_agent/attestation/tpm.py", "if not self._ends_lockout or", "if",
        f"{_SWTPM}::test_a_deploy_system_ends_the_lockout_that_a_tenant_has_left_and_a_node_does_not",
    ),
    _mutant(
        "a disk is the medium where no CD is", "deploy/metal/deploy-init", "for device in /dev/sr?; do",
        "for device in /dev/sr? /dev/sd?; do",
        "tests/metal/test_medium.py::test_the_medium_is_read_from_a_cd_drive_alone",
    ),
    _mutant(
        "the medium lacks a module that its agent imports", "deploy/metal/build-deploy-medium",
        "curses,sqlite3,xmlrpc,venv}", "curses,sqlite3,xmlrpc,wsgiref,venv}",
        "tests/metal/test_medium.py::test_no_part_of_pythons_library_that_the_agent_imports_is_removed",
    ),
]  # fmt: skip
