"""Benchmarks of the log: key-value commits, feed, metering, relay."""
