"""The real agent process runs plugins of maintenance windows."""
