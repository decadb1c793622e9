"""Tests of allocations on machines behind BMCs."""
