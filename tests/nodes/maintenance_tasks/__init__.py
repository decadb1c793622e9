"""Tasks of maintenance windows, with commands in place of worker and node."""
