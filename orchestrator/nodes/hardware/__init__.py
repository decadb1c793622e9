"""GPUs and disks by serial number: where each is, what happened to it, and its repairs."""
