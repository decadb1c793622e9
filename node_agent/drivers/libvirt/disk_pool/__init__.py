"""Disks of guests as thin volumes of LVM, in the pool that `BERTH_LIBVIRT_DISK_POOL` names."""
