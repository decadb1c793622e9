"""Tests of drivers of switches."""
