"""Mutants of what guests get of their host: processors, huge pages and GPUs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DRIVER = "node_agent/drivers/libvirt"
_PLACEMENT = "tests/libvirt_driver/placement/test_placement.py"
_PAGES = "tests/libvirt_driver/placement/test_huge_pages.py"
_JUDGING = "tests/libvirt_driver/vfio/test_judging.py"
_PASSING = "tests/libvirt_driver/vfio/test_passing.py"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"passing: {name}", "agent", path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "two slots share the threads of a core",
        f"{_DRIVER}/placement.py",
        "taken += left[node].pop(0).threads",
        "taken += left[node].pop(0).threads if len(taken) else left[node][0].threads",
        f"{_PLACEMENT}::test_no_two_slices_share_a_core_and_none_has_one_of_the_host",
    ),
    _mutant(
        "guests run on the host's processors",
        f"{_DRIVER}/placement.py",
        "free = [core for core in cores if kept.isdisjoint(core.threads)]",
        "free = list(cores)",
        f"{_PLACEMENT}::test_no_two_slices_share_a_core_and_none_has_one_of_the_host",
    ),
    _mutant(
        "a guest of earlier settings loses its processors",
        f"{_DRIVER}/placing.py",
        "if one.placement is not None}",
        "if one.placement is None}",
        f"{_PLACEMENT}::test_a_guest_of_earlier_settings_keeps_its_processors_from_a_new_one",
    ),
    _mutant(
        "a lost GPU moves the slots behind it",
        f"{_DRIVER}/host_slots.py",
        "    return known\n\n\ndef read_slots_file",
        "    return found\n\n\ndef read_slots_file",
        f"{_PLACEMENT}::test_a_gpu_that_falls_off_the_bus_moves_no_other_slot",
    ),
    _mutant(
        "the memory of a slice of both halves is of one",
        f"{_DRIVER}/resources.py",
        "    if len(placement.cells) > 1:\n        for number",
        "    if len(placement.cells) > 9:\n        for number",
        f"{_PLACEMENT}::test_a_slice_of_both_halves_has_a_cell_of_each",
    ),
    _mutant(
        "free huge pages are counted on the whole host",
        f"{_DRIVER}/huge_pages.py",
        "if placement is None or not placement.is_bound:",
        "if True:",
        f"{_PAGES}::test_each_numa_node_needs_the_pages_of_its_cell",
    ),
    _mutant(
        "half an IOMMU group is given to a guest",
        f"{_DRIVER}/vfio/judging.py",
        "if other.address not in ours and not other.is_bridge]",
        "if other.address in ours and not other.is_bridge]",
        f"{_JUDGING}::test_a_group_is_given_whole_or_not_at_all",
    ),
    _mutant(
        "a GPU that a process has open is bound",
        f"{_DRIVER}/vfio/judging.py",
        "    if one.users is None or one.users:\n",
        "    if one.users is None:\n",
        f"{_JUDGING}::test_each_lack_is_found",
    ),
    _mutant(
        "any driver loses its device",
        f"{_DRIVER}/vfio/judging.py",
        "if driver not in (None, DRIVER, *host_drivers):",
        "if False:",
        f"{_JUDGING}::test_each_lack_is_found",
    ),
    _mutant(
        "a dead GPU counts as reset",
        f"{_DRIVER}/vfio/passing.py",
        "if after.pci_id is None or after.pci_id",
        "if after.pci_id",
        f"{_PASSING}::test_a_gpu_that_does_not_answer_after_its_reset_stays_taken",
    ),
    _mutant(
        "a reset that failed is proven",
        f"{_DRIVER}/vfio/passing.py",
        "if said.error is not None:",
        "if False:",
        f"{_PASSING}::test_a_gpu_that_the_kernel_cannot_reset_stays_taken",
    ),
    _mutant(
        "what a guest had is returned without a reset",
        f"{_DRIVER}/vfio/passing.py",
        'if state == "taking":\n            return []',
        'if state != "reset":\n            return []',
        f"{_PASSING}::test_a_gpu_is_bound_with_its_card_and_returned_reset",
    ),
    _mutant(
        "a GPU of another guest is reset again",
        f"{_DRIVER}/vfio/passing.py",
        'if state == "reset" else await self._reset(one)',
        'if state == "never" else await self._reset(one)',
        f"{_PASSING}::test_both_can_be_repeated_and_the_reset_is_proven_until_it_is_forgotten",
    ),
    _mutant(
        "GPUs stay with vfio-pci whatever is set",
        f"{_DRIVER}/vfio/passing.py",
        "        if not self.are_returned:\n",
        "        if True:\n",
        f"{_PASSING}::test_a_gpu_is_bound_with_its_card_and_returned_reset",
    ),
    _mutant(
        "devices are bound before they are written down",
        f"{_DRIVER}/vfio/taken.py",
        'write_durably(self._file(allocation_id, "taking"), taken.model_dump_json().encode())',
        'self._file(allocation_id, "passed").write_text(taken.model_dump_json())',
        f"{_PASSING}::test_a_binding_that_the_kernel_refuses_is_undone_without_a_reset",
    ),
    _mutant(
        "a GPU of a stopped guest goes to a second one",
        f"{_DRIVER}/vfio/taken.py",
        'if known is not None and known[0] != "reset":',
        'if known is not None and known[0] == "reset":',
        f"{_PASSING}::test_a_gpu_of_a_guest_that_is_stopped_goes_to_no_other",
    ),
    _mutant(
        "nothing is asked of what other allocations have",
        f"{_DRIVER}/vfio/passing.py",
        "        why += self._held_by_others(allocation_id, found)\n",
        "",
        f"{_PASSING}::test_of_two_guests_that_start_at_once_one_gets_the_gpu",
    ),
    _mutant(
        "a repeated release unbinds the GPU of another guest",
        f"{_DRIVER}/vfio/passing.py",
        'if holder is not None or (state == "reset" and now.users != 0):',
        'if state == "reset" and now.users != 0:',
        f"{_PASSING}::test_a_repeated_release_leaves_alone_what_another_guest_has_by_then",
    ),
    _mutant(
        "a repeated release unbinds a GPU that is open",
        f"{_DRIVER}/vfio/passing.py",
        'if holder is not None or (state == "reset" and now.users != 0):',
        "if holder is not None:",
        f"{_PASSING}::test_a_repeated_release_leaves_alone_what_another_guest_has_by_then",
    ),
    _mutant(
        "a new GPU is of no slot and nothing says so",
        f"{_DRIVER}/host_slots.py",
        "    if are_passed and strangers:\n",
        "    if False:\n",
        f"{_PLACEMENT}::test_a_gpu_that_falls_off_the_bus_moves_no_other_slot",
    ),
    _mutant(
        "a slot without processors fails its guest",
        f"{_DRIVER}/placement.py",
        "if self.blocks is None or any(slot >= len(self.blocks) for slot in slots):",
        "if self.blocks is None:",
        f"{_PLACEMENT}::test_a_guest_of_earlier_settings_keeps_its_processors_from_a_new_one",
    ),
    _mutant(
        "memory that a NUMA node lacks is bound",
        f"{_DRIVER}/placement.py",
        "if memory[node] < slots * each_bytes:",
        "if memory[node] < each_bytes:",
        f"{_PLACEMENT}::test_memory_is_bound_where_each_numa_node_has_enough",
    ),
]
