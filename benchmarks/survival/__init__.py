"""Benchmarks of what a lost server costs."""
