"""Tests of GPUs of the host in guests."""
