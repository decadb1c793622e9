"""Tests of `berth archive`."""
