"""Tests of `berth backup` on real servers."""
