"""Tests of what reads the log for its own purposes: the client's iterator, the consumer, metering."""
