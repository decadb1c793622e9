"""Tests of the guests of active allocations."""
