"""Mutants of disks on thin volumes, which tests without device mapper catch."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

POOL = "node_agent/drivers/libvirt/disk_pool"
TESTS = "tests/libvirt_driver/disk_pool"

MUTANTS: list[Mutant] = [
    Mutant(
        "disk pool: the sizes of volumes are not bounded",
        "agent",
        f"{POOL}/pool.py",
        "if state.virtual_bytes + size_bytes > most:",
        "if False:",
        (f"{TESTS}/test_reports.py::test_the_last_byte_within_the_bound_is_given",),
    ),
    Mutant(
        "disk pool: a pool whose metadata are full takes disks",
        "agent",
        f"{POOL}/contents.py",
        "            if percent is not None and percent >= most:",
        '            if percent is not None and percent >= most and what == "data":',
        (f"{TESTS}/test_reports.py::test_a_disk_without_room_is_refused_before_anything_is_made",),
    ),
    Mutant(
        "disk pool: a volume that is still there counts as removed",
        "agent",
        f"{POOL}/pool.py",
        '        if volume in self.look().volumes:\n            raise PoolError(f"{full} is still there after it was removed")',
        '        if False:\n            raise PoolError(f"{full} is still there after it was removed")',
        (f"{TESTS}/test_reports.py::test_a_volume_that_cannot_be_removed_is_not_taken_for_removed",),
    ),
    Mutant(
        "disk pool: snapshots of a volume are not seen",
        "agent",
        f"{POOL}/contents.py",
        "if other.origin == volume.name)",
        "if False)",
        (f"{TESTS}/test_reports.py::test_snapshots_of_a_volume_are_found",),
    ),
    Mutant(
        "disk pool: what was overwritten is not read back",
        "agent",
        f"{POOL}/zeroing.py",
        "        _require_zero(descriptor, end, device, stop)\n",
        "",
        (f"{TESTS}/test_zeroing.py::test_a_write_that_does_not_arrive_or_is_cut_short_is_found",),
    ),
    Mutant(
        "disk pool: a volume is discarded and not overwritten",
        "agent",
        f"{POOL}/zeroing.py",
        "                if buffer[at : at + piece] != _ZEROS[:piece]:",
        "                if False:",
        (f"{TESTS}/test_zeroing.py",),
    ),
    Mutant(
        "disk pool: a program that hangs is killed in the middle",
        "agent",
        f"{POOL}/lvm.py",
        "        process.terminate()",
        "        process.kill()",
        (f"{TESTS}/test_reports.py::test_a_program_that_does_not_end_is_left_after_its_time_and_never_killed",),
    ),
    Mutant(
        "disk pool: a pool that does not zero is fit",
        "agent",
        "node_agent/checks/disk_pool.py",
        "    if not state.zeroes:",
        "    if False:",
        (f"{TESTS}/test_checks.py::test_each_finding_of_a_pool_names_its_remedy",),
    ),
    Mutant(
        "disk pool: the setting is taken away under guests with volumes",
        "agent",
        f"{POOL}/volumes_held.py",
        "        if named:",
        "        if False:",
        (f"{TESTS}/test_checks.py::test_the_pool_of_guests_that_are_there_cannot_be_taken_away",),
    ),
    Mutant(
        "disk pool: heartbeats report what was before a change",
        "agent",
        f"{POOL}/pool.py",
        "seen[0] == self._changes and",
        "",
        (f"{TESTS}/test_reports.py::test_heartbeats_do_not_ask_lvm_each_time_unless_something_changed",),
    ),
    Mutant(
        "disk pool: what was wiped is not kept until the directory is removed",
        "agent",
        "node_agent/drivers/libvirt/release.py",
        "partial(wipe_content, directory.path, directory.wiped_disk)",
        "partial(wipe_content, directory.path)",
        (f"{TESTS}/test_repeated_releases.py",),
    ),
    Mutant(
        "disk pool: a rebuild does not name its disk",
        "agent",
        "node_agent/drivers/libvirt/driver.py",
        '{"devices": up.given(), **up.devices().evidence()}',
        "{**up.devices().evidence()}",
        (f"{TESTS}/test_rebuilds.py::test_a_rebuild_from_a_file_to_a_volume_names_the_volume",),
    ),
    Mutant(
        "disk pool: a volume of another pool of the group is taken for absent",
        "agent",
        f"{POOL}/pool.py",
        "            raise PoolError(self.why_elsewhere(volume))",
        "            return None",
        (f"{TESTS}/test_reports.py::test_a_volume_of_another_pool_of_the_group_is_not_taken_for_absent",),
    ),
    Mutant(
        "disk pool: a rebuild looks for room after the wipe alone",
        "agent",
        "node_agent/drivers/libvirt/verbs.py",
        "        await provisioning.require_room()\n",
        "",
        (f"{TESTS}/test_rebuilds.py::test_a_rebuild_that_would_find_no_room_destroys_nothing",),
    ),
    Mutant(
        "disk pool: what another agent made meanwhile is not seen",
        "agent",
        f"{POOL}/pool.py",
        "            self._require_still_room(name, size_bytes)\n",
        "",
        (f"{TESTS}/test_reports.py::test_of_two_agents_that_make_volumes_at_once_none_exceeds_the_bound",),
    ),
]
