"""Tests of processors, NUMA nodes and huge pages of guests."""
