"""CHECK constraints of restores."""

from __future__ import annotations

from tests.schema.checks import Check

CHECKS = {"restore_head": Check("restores", ({"head_version": -1},), ({"head_version": 0},))}
