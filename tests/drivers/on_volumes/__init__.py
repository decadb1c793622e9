"""The libvirt driver with disks on volumes, under the suite."""
