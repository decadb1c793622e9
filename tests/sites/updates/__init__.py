"""Updates of firmware through BMCs, in maintenance windows."""
