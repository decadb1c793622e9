"""Slices as virtual machines of libvirt and QEMU."""
