"""`berth image import`: what is checked without QEMU, and what the command does."""
