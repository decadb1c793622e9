"""Mutants of resets of GPUs: what an agent touches and proves, which slots must be out of service, and what a failure changes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AGENT = "node_agent/gpu_reset/gpu_reset.py"
_FUNCTIONS = "node_agent/gpu_reset/functions.py"
_EFFECTS = "node_agent/effects.py"
_RULES = "orchestrator/nodes/gpu_resets/rules.py"
_STORE = "orchestrator/nodes/store/gpu_resets.py"
_COMMANDS = "orchestrator/nodes/commands/gpu_resets.py"
_OF_AGENT = "tests/discovery/gpu_resets/test_resets.py"
_OF_PROCESS = "tests/node_agent/gpu_reset/test_agent.py"
_OF_RULES = "tests/nodes/gpu_resets/test_rules.py"
_OF_RESETS = "tests/nodes/gpu_resets/test_gpu_resets.py"
_OF_SERVICE = "tests/nodes/gpu_resets/test_out_of_service.py"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"gpu reset: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a GPU of an allocation is reset", _AGENT, "        if held.intersection(order.slots):\n", "        if False:\n",
        f"{_OF_AGENT}::test_the_agent_resets_no_gpu_of_an_allocation", "agent",
    ),
    _mutant(
        "the agent overlooks what it holds", _EFFECTS,
        "        return frozenset(inventory.leased_slots).union(*(held.slots for held in inventory.held))\n",
        "        return frozenset()\n",
        f"{_OF_PROCESS}::test_an_order_is_answered_and_an_allocation_protects_its_gpu", "agent",
    ),
    _mutant(
        "half a group is reset", _AGENT, "        if objections:\n", "        if len(objections) == len(wanted):\n",
        f"{_OF_AGENT}::test_what_cannot_be_reset_is_named_and_no_gpu_is_touched", "agent",
    ),
    _mutant(
        "an open device is reset", _AGENT, "        if found.users:\n", "        if False:\n",
        f"{_OF_AGENT}::test_what_cannot_be_reset_is_named_and_no_gpu_is_touched", "agent",
    ),
    _mutant(
        "open files that cannot be read are none", _FUNCTIONS, "    except OSError:\n        return None\n    return found\n",
        "    except OSError:\n        return 0\n    return found\n",
        f"{_OF_AGENT}::test_open_files_that_cannot_be_read_are_a_use", "agent",
    ),
    _mutant(
        "the files of newer kernels are overlooked", _FUNCTIONS, '    files |= {f"/dev/vfio/devices/{name}"',
        '    files |= {f"/dev/{name}"', f"{_OF_AGENT}::test_what_cannot_be_reset_is_named_and_no_gpu_is_touched", "agent",
    ),
    _mutant(
        "a device that does not answer is there", _FUNCTIONS, " or found == _OFF_THE_BUS:", ":",
        f"{_OF_AGENT}::test_a_reset_that_another_look_does_not_prove_has_failed", "agent",
    ),
    _mutant(
        "no other look", _AGENT, "            doubt = _doubt(one, before, after)\n", "            doubt = None\n",
        f"{_OF_AGENT}::test_a_reset_that_another_look_does_not_prove_has_failed", "agent",
    ),
    _mutant(
        "another GPU at the address is the same", _AGENT,
        "    if old is not None and (old.serial, old.uuid) != (gpu.serial, gpu.uuid):\n",
        "    if False:\n", f"{_OF_AGENT}::test_a_reset_that_another_look_does_not_prove_has_failed", "agent",
    ),
    _mutant(
        "the others are reset after a failure", _AGENT, "            if failed:\n", "            if False:\n",
        f"{_OF_AGENT}::test_after_a_failure_the_others_are_left_out", "agent",
    ),
    _mutant(
        "a reset survives its agent", _FUNCTIONS, "    tether(int(agent))\n", "    int(agent)\n",
        f"{_OF_AGENT}::test_a_killed_agent_leaves_no_process_and_a_repetition_resets", "agent",
    ),
    _mutant(
        "an order without a GPU is carried out", "node_agent/admission.py", "    TaskType.GPU_RESET: GpuResetParameters,\n", "",
        f"{_OF_PROCESS}::test_orders_that_are_wrong_are_refused", "agent",
    ),
    _mutant(
        "a GPU that NVML lost has no links", _RULES,
        "        connected |= {address for address, seen in known.items() if all(gpu.model is None for gpu in seen)}\n",
        "        pass\n", f"{_OF_RULES}::test_what_is_reset_together",
    ),
    _mutant(
        "GPUs with links are reset alone", _RULES, "        (wanted in together and address in together)\n", "        False\n",
        f"{_OF_SERVICE}::test_gpus_that_nvlink_connects_are_reset_together_or_not",
    ),
    _mutant(
        "a slot of a tenant is reset", _RULES, "        if slot.occupied:\n", "        if False:\n",
        f"{_OF_SERVICE}::test_a_slot_in_service_and_one_of_a_tenant_are_not_reset",
    ),
    _mutant(
        "a slot in service is reset", _RULES, "        elif not slot.quarantined and slot.maintained_until is None:\n",
        "        elif False:\n", f"{_OF_SERVICE}::test_a_slot_in_service_and_one_of_a_tenant_are_not_reset",
    ),
    _mutant(
        "a window that ends meanwhile serves", _RULES, " and slot.maintained_until < enough:", " and False:",
        f"{_OF_SERVICE}::test_a_window_that_ends_too_soon_does_not_serve",
    ),
    _mutant(
        "what the report leaves out was reset", _RULES, "        if one is None:\n",
        "        if one is None:\n            continue\n",
        f"{_OF_RULES}::test_only_a_report_about_every_gpu_proves_a_reset",
    ),
    _mutant(
        "the approved serial number is not compared", _RULES, "serials.get(address, one.serial) != one.serial:", "False:",
        f"{_OF_RULES}::test_only_a_report_about_every_gpu_proves_a_reset",
    ),
    _mutant(
        "slots are not looked at again before the task", _COMMANDS,
        '    return f"gpus_in_service: {GpusInService.sentence(refused)}" if refused else None\n', "    return None\n",
        f"{_OF_SERVICE}::test_a_window_that_ended_before_the_task_was_issued_ends_the_request",
    ),
    _mutant(
        "a failure is no fault", _COMMANDS, "    await quarantines.note_faults(tx, node_id, known.slots)\n", "    pass\n",
        f"{_OF_RESETS}::test_what_is_not_proven_says_why_and_is_a_fault_if_a_gpu_may_be_touched",
    ),
    _mutant(
        "a window returns a slot after a failure", _COMMANDS,
        "    await take_out_of_service(tx, node_id, begun, _RESETTER, \"operator\")\n", "",
        f"{_OF_SERVICE}::test_a_reset_in_maintenance_that_is_not_proven_takes_the_slot_into_quarantine",
    ),
    _mutant(
        "a refusal is a fault", _COMMANDS, "    elif touched(report):\n", "    else:\n",
        f"{_OF_RESETS}::test_what_is_not_proven_says_why_and_is_a_fault_if_a_gpu_may_be_touched",
    ),
    _mutant(
        "a slot returns while its GPU is reset", "orchestrator/nodes/commands/quarantines.py",
        "    if resetting is not None and found.slot_index in resetting.slots:\n", "    if False:\n",
        f"{_OF_SERVICE}::test_a_slot_does_not_return_while_its_gpu_is_reset",
    ),
    _mutant(
        "a window ends while a GPU is reset", "orchestrator/maintenance/commands/windows.py",
        "        if resetting is not None:\n", "        if False:\n",
        f"{_OF_SERVICE}::test_a_slot_in_maintenance_is_reset_and_its_window_does_not_end_meanwhile", "maintenance",
    ),
    _mutant(
        "a window returns a slot before its reset is judged", "orchestrator/maintenance/commands/advance.py",
        "            await _keep_resetting_out(tx, window_id)\n", "",
        f"{_OF_SERVICE}::test_a_window_that_ends_before_its_reset_is_judged_leaves_the_slot_in_quarantine", "maintenance",
    ),
    _mutant(
        "a burn-in begins beside a reset", "orchestrator/nodes/commands/burn_ins.py",
        "    if await gpu_resets.read_open(tx, node_id) is not None:\n", "    if False:\n",
        f"{_OF_SERVICE}::test_a_burn_in_and_a_reset_exclude_each_other",
    ),
    _mutant(
        "a task that no node read is a fault", _COMMANDS, " and not never_read:", ":",
        f"{_OF_RESETS}::test_a_task_without_an_answer_ends_by_its_deadline_and_is_a_fault_if_it_was_dispatched",
    ),
    _mutant(
        "another GPU at the address is requested", _COMMANDS, "    if group.changed is not None:\n        raise",
        "    if False:\n        raise",
        f"{_OF_RESETS}::test_an_order_names_the_serial_numbers_and_another_gpu_at_an_address_is_not_reset",
    ),
    _mutant(
        "another GPU at the address is ordered", _COMMANDS, "    if group.changed is not None:\n        return",
        "    if False:\n        return",
        f"{_OF_RESETS}::test_an_order_names_the_serial_numbers_and_another_gpu_at_an_address_is_not_reset",
    ),
    _mutant(
        "the agent touches another GPU at the address", _AGENT, " or _stranger(one, before, order.serials))", ")",
        f"{_OF_AGENT}::test_another_gpu_at_the_address_is_not_touched", "agent",
    ),
    _mutant(
        "a refusal of several GPUs touched none", _AGENT, "        if len(addresses) > 1:\n", "        if False:\n",
        f"{_OF_AGENT}::test_a_refusal_of_several_gpus_is_never_untouched", "agent",
    ),
    _mutant(
        "the agent waits for a driver that hangs", _EFFECTS, "        inventory = await self._look()\n        if",
        "        inventory = await self._driver.inventory()\n        if",
        "tests/node_agent/gpu_reset/test_hanging_driver.py::test_a_driver_that_hangs_ends_the_task_and_the_next_one_begins",
        "agent",
    ),
    _mutant(
        "serial numbers have no entry", _STORE, "    await tx.execute(_NOTE, values)\n", "    pass\n",
        f"{_OF_RESETS}::test_the_history_of_each_serial_number_has_it",
    ),
]  # fmt: skip
