"""Tests of the checks of a host."""
