"""Mutants of guests' devices: what a definition leaves out, what an agent lists, and what a report may say."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DOMAIN = "node_agent/drivers/libvirt/domain.py"
_LISTED = "node_agent/drivers/libvirt/devices.py"
_WIRE = "node_agent/wire/devices.py"
_RESULTS = "orchestrator/allocations/commands/task_results.py"
_STORE = "orchestrator/allocations/store/devices.py"
_DOCUMENTS = "orchestrator/allocations/device_documents.py"
_OF_DEFINITION = "tests/libvirt_driver/test_definition.py::test_a_guest_is_defined_with_these_devices_and_no_other"
_OF_DEVICES = "tests/libvirt_driver/test_devices.py"
_OF_REPORTS = "tests/allocations/test_devices.py"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "agent") -> Mutant:
    return Mutant(f"devices: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a guest has a USB tablet", _DOMAIN, '    ET.SubElement(devices, "memballoon", model="none")\n',
        '    ET.SubElement(devices, "memballoon", model="none")\n    ET.SubElement(devices, "input", type="tablet", bus="usb")\n',
        _OF_DEFINITION,
    ),
    _mutant(
        "a guest has a keyboard", _DOMAIN, '"i8042=off,sata=off,smbus=off"', '"sata=off,smbus=off"',
        f"{_OF_DEVICES}::test_the_definition_switches_off_what_no_guest_needs",
    ),
    _mutant(
        "a guest has VMware's port", _DOMAIN, '"vmport", state="off"', '"vmport", state="on"',
        f"{_OF_DEVICES}::test_the_definition_switches_off_what_no_guest_needs",
    ),
    _mutant(
        "the network card has a legacy interface", _DOMAIN, ",romfile=,disable-legacy=on", ",romfile=",
        f"{_OF_DEVICES}::test_the_definition_switches_off_what_no_guest_needs",
    ),
    _mutant(
        "an argument of QEMU adds no device", _LISTED, '        elif option not in ("-netdev", "-machine"):\n',
        '        elif False:\n', f"{_OF_DEVICES}::test_a_device_by_an_argument_of_qemu_is_listed",
    ),
    _mutant(
        "libvirt's keyboard is never listed", _LISTED, "if machine.get(part) in _OFF for name", "for name",
        f"{_OF_DEVICES}::test_what_qemu_leaves_out_counts_only_while_it_does",
    ),
    _mutant(
        "a part of many devices is listed", _LISTED, "    if len(found) > DEVICES_MAX:\n        return unknown(f\"the guest has",
        "    found = found[:DEVICES_MAX]\n    if len(found) > DEVICES_MAX:\n        return unknown(f\"the guest has",
        f"{_OF_DEVICES}::test_many_devices_are_unknown_and_never_a_part_of_them",
    ),
    _mutant(
        "devices without a reason are none", _WIRE, "        if bool(self.devices) is (self.reason is not None):\n",
        "        if False:\n", f"{_OF_DEVICES}::test_what_no_agent_may_report",
    ),
    _mutant(
        "a verb's devices are not validated", _RESULTS, "            _require_devices(after.evidence)\n", "",
        f"{_OF_REPORTS}::test_a_report_that_is_not_valid_changes_nothing", "allocations",
    ),
    _mutant(
        "a start changes no devices", _STORE, "'allocation.rebuild', 'allocation.start',", "'allocation.rebuild',",
        f"{_OF_REPORTS}::test_the_devices_of_the_newest_start_are_read", "allocations",
    ),
    _mutant(
        "stored devices are not validated", _DOCUMENTS, "        return GuestDevices.model_validate(stored.reported)\n",
        "        return GuestDevices.model_construct(**stored.reported)\n",
        f"{_OF_REPORTS}::test_what_an_older_control_plane_stored_is_never_an_error", "allocations",
    ),
]  # fmt: skip
