"""Mutants of the checks of a host: what refuses a start, and what is tried."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHECKS = "node_agent/checks"
_TESTS = "tests/host_checks/test_system.py"
_SEPARATION = "tests/host_checks/test_separation.py"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"hosts: {name}", "agent", path, old, new, (f"{_TESTS}::{test}",))


MUTANTS: list[Mutant] = [
    _mutant(
        "an agent starts on a host that is refused", f"{_CHECKS}/start.py", "if refused is not None:", "if False:",
        "test_an_agent_with_the_driver_libvirt_does_not_start_on_a_host_that_is_refused",
    ),
    _mutant(
        "every driver needs a host for guests", f"{_CHECKS}/start.py",
        'settings.agent_driver != "libvirt" or settings.guest_dir is None', "settings.guest_dir is None",
        "test_an_agent_with_the_driver_libvirt_does_not_start_on_a_host_that_is_refused",
    ),
    _mutant(
        "warnings refuse a host", f"{_CHECKS}/finding.py", "self.severity is not Severity.REFUSES", "self.code is None",
        "test_only_what_refuses_the_host_does_not_pass",
    ),
    _mutant(
        "a size of zero bounds a log", f"{_CHECKS}/console_logs.py", "if size == 0:", "if False:",
        "test_the_bounds_of_virtlogd",
    ),
    _mutant(
        "backups do not count", f"{_CHECKS}/console_logs.py", "size * (backups + 1)", "size",
        "test_the_bounds_of_virtlogd",
    ),
    _mutant(
        "the device is tried without groups", f"{_CHECKS}/kvm_device.py", "extra_groups=user.groups", "extra_groups=()",
        "test_the_device_is_tried_as_the_user_with_its_groups",
    ),
    _mutant(
        "guests by emulation need /dev/kvm", f"{_CHECKS}/kvm_device.py", "not access.guests and boots()",
        "not access.guests", "test_access_to_kvm",
    ),
    _mutant(
        "a GPU outside of all groups is fine", f"{_CHECKS}/iommu.py", "gpu.iommu_group is None or not groups",
        "not groups", "test_the_iommu",
    ),
    _mutant(
        "one bridge setting is enough", f"{_CHECKS}/bridges.py", "for name, value in settings.items() if value]",
        "for name, value in list(settings.items())[1:2] if value]", "test_the_filter_of_bridges",
    ),
    Mutant(
        "hosts: guests without ownership of their files are fit",
        "agent",
        "node_agent/checks/separation.py",
        'settings.get("dynamic_ownership", "1") == "0"',
        'settings.get("dynamic_ownership", "1") == "off"',
        (f"{_SEPARATION}::test_settings_and_accounts",),
    ),
    Mutant(
        "hosts: an account may have the last user id of the guests",
        "agent",
        "node_agent/checks/separation.py",
        "if first <= number <= last]",
        "if first <= number < last]",
        (f"{_SEPARATION}::test_settings_and_accounts",),
    ),
]  # fmt: skip
