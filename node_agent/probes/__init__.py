"""Health of a node's hardware: sysfs, NVML, smartctl and plugins, each read in a separate process with a deadline."""
