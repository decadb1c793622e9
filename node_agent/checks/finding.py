"""What a check of the host found, and the codes of everything that it can object to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What an objection means. `refuses`: guests would not run; an agent with the driver libvirt does not start, except for a
    code of `STARTS_ALL_THE_SAME`."""

    REFUSES = "refuses"
    WARNS = "warns"
    INFORMS = "informs"


class Code(StrEnum):
    """Stable codes of objections; docs/reference/fleet/host-checks.md has each."""

    DIRECTORY_UNUSABLE = "directory_unusable"
    DIRECT_IO_MISSING = "direct_io_missing"
    GUEST_DIRECTORY_CLOSED = "guest_directory_closed"
    EMULATION_FAILS = "emulation_fails"
    KVM_RUNS_NO_GUEST = "kvm_runs_no_guest"
    KVM_ABSENT = "kvm_absent"
    KVM_CLOSED_TO_GUESTS = "kvm_closed_to_guests"
    KVM_CLOSED_TO_LIBVIRT = "kvm_closed_to_libvirt"
    KVM_ACCESS_UNKNOWN = "kvm_access_unknown"
    QEMU_USER_ABSENT = "qemu_user_absent"
    GUEST_OWNERSHIP_OFF = "guest_ownership_off"
    GUEST_USERS_TAKEN = "guest_users_taken"
    LIBVIRT_PACKAGES_MISSING = "libvirt_packages_missing"
    LIBVIRT_SILENT = "libvirt_silent"
    LIBVIRT_SETTINGS_UNREADABLE = "libvirt_settings_unreadable"
    VIRTLOGD_ABSENT = "virtlogd_absent"
    CONSOLE_LOG_UNBOUNDED = "console_log_unbounded"
    CONSOLE_LOG_BOUND_LARGE = "console_log_bound_large"
    BRIDGE_FILTER_ON = "bridge_filter_on"
    BRIDGE_FILTER_UNREADABLE = "bridge_filter_unreadable"
    IOMMU_OFF = "iommu_off"
    IOMMU_UNNEEDED = "iommu_unneeded"
    HUGE_PAGES_RESERVED = "huge_pages_reserved"
    HUGE_PAGES_ABSENT = "huge_pages_absent"
    HUGE_PAGES_TOO_FEW = "huge_pages_too_few"
    HUGETLBFS_ABSENT = "hugetlbfs_absent"
    DISK_POOL_PROGRAM_MISSING = "disk_pool_program_missing"
    DISK_POOL_ABSENT = "disk_pool_absent"
    DISK_POOL_NOT_THIN = "disk_pool_not_thin"
    DISK_POOL_NOT_ZEROING = "disk_pool_not_zeroing"
    DISK_POOL_SILENT = "disk_pool_silent"
    DISK_POOL_DAMAGED = "disk_pool_damaged"
    DISK_POOL_FULL = "disk_pool_full"
    DISK_POOL_OVERCOMMITTED = "disk_pool_overcommitted"
    SLOTS_UNKNOWN = "slots_unknown"
    PROCESSORS_TOO_FEW = "processors_too_few"
    NODE_MEMORY_TOO_SMALL = "node_memory_too_small"
    VFIO_DEVICE_MISSING = "vfio_device_missing"
    VFIO_DEVICE_SILENT = "vfio_device_silent"
    VFIO_IOMMU_OFF = "vfio_iommu_off"
    VFIO_MODULE_MISSING = "vfio_module_missing"
    VFIO_GROUP_SHARED = "vfio_group_shared"
    VFIO_DRIVER_HOLDS = "vfio_driver_holds"
    VFIO_DEVICE_IN_USE = "vfio_device_in_use"
    VFIO_DEVICE_TAKEN = "vfio_device_taken"
    VFIO_RESET_MISSING = "vfio_reset_missing"
    VFIO_SYSFS_CLOSED = "vfio_sysfs_closed"
    VFIO_NODE_CLOSED = "vfio_node_closed"
    FABRIC_UNMANAGED = "fabric_unmanaged"
    OVMF_ABSENT = "ovmf_absent"
    NETWORK_PROGRAM_MISSING = "network_program_missing"
    NAME_SERVER_MISSING = "name_server_missing"
    TRUNK_INTERFACE_MISSING = "trunk_interface_missing"
    TRUNK_INTERFACE_TAKEN = "trunk_interface_taken"
    TRUNK_MTU_TOO_SMALL = "trunk_mtu_too_small"
    FORWARDING_OFF = "forwarding_off"
    IPV6_SETTING_CLOSED = "ipv6_setting_closed"


_WARNINGS = {
    Code.KVM_CLOSED_TO_LIBVIRT, Code.KVM_ACCESS_UNKNOWN, Code.LIBVIRT_SETTINGS_UNREADABLE, Code.VIRTLOGD_ABSENT,
    Code.CONSOLE_LOG_BOUND_LARGE, Code.BRIDGE_FILTER_ON, Code.BRIDGE_FILTER_UNREADABLE, Code.IOMMU_OFF,
    Code.QEMU_USER_ABSENT, Code.OVMF_ABSENT, Code.IPV6_SETTING_CLOSED, Code.HUGE_PAGES_TOO_FEW, Code.PROCESSORS_TOO_FEW,
    Code.NODE_MEMORY_TOO_SMALL, Code.GUEST_USERS_TAKEN,
    Code.VFIO_DEVICE_SILENT, Code.VFIO_GROUP_SHARED, Code.VFIO_DEVICE_IN_USE, Code.VFIO_DEVICE_TAKEN,
    Code.VFIO_RESET_MISSING, Code.FABRIC_UNMANAGED, Code.DISK_POOL_FULL,
}  # fmt: skip
_INFORMATION = {
    Code.KVM_RUNS_NO_GUEST,
    Code.KVM_ABSENT,
    Code.IOMMU_UNNEEDED,
    Code.HUGE_PAGES_RESERVED,
    Code.SLOTS_UNKNOWN,
    Code.DISK_POOL_OVERCOMMITTED,
}
STARTS_ALL_THE_SAME = {
    Code.VFIO_DEVICE_MISSING, Code.VFIO_IOMMU_OFF, Code.VFIO_DRIVER_HOLDS, Code.NAME_SERVER_MISSING,
    Code.DISK_POOL_DAMAGED, Code.TRUNK_INTERFACE_MISSING, Code.TRUNK_INTERFACE_TAKEN, Code.TRUNK_MTU_TOO_SMALL,
}  # fmt: skip
"""New guests get no GPU, no name server, no uplink or no disk, and are refused by each order. An agent that does not start
could not release those that are there."""
_LABELS = {None: "ok", Severity.REFUSES: "FAIL", Severity.WARNS: "warn", Severity.INFORMS: "info"}


def severity_of(code: Code) -> Severity:
    """The severity of a code. Whatever is neither a warning nor information refuses."""
    if code in _WARNINGS:
        return Severity.WARNS
    return Severity.INFORMS if code in _INFORMATION else Severity.REFUSES


@dataclass(frozen=True)
class Finding:
    """One check: what was found; if the check objects, its code and what to do about it."""

    name: str
    found: str
    code: Code | None = None
    remedy: str = ""

    @property
    def severity(self) -> Severity | None:
        """None if the check does not object."""
        return None if self.code is None else severity_of(self.code)

    @property
    def passed(self) -> bool:
        """Whether guests may run on this host as far as this check knows."""
        return self.severity is not Severity.REFUSES

    @property
    def lets_start(self) -> bool:
        """Whether an agent may start on this host as far as this check knows."""
        return self.passed or self.code in STARTS_ALL_THE_SAME

    def line(self) -> str:
        """The finding as one line of output."""
        label = _LABELS[self.severity]
        text = f"{label:4}  {self.name}: {self.found}"
        if self.code is None:
            return text
        return f"{text} [{self.code}]" + (f"; {self.remedy}" if self.remedy else "")
