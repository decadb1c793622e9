"""Violations that one branch alone of a compound condition finds (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import Violation

BRANCHES: list[Violation] = []
KEPT: list[str] = []
"""What no check may report."""
