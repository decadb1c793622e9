"""Discovery of what a node is made of: sysfs and NVML, each read in a separate process."""
