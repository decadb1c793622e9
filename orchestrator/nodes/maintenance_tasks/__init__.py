"""Tasks of maintenance windows on nodes: when one begins, and which result is a success."""
