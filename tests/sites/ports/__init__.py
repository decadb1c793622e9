"""Tests of machines whose switch ports are moved."""
