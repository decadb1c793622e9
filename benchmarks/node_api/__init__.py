"""Benchmarks of the node listener."""
