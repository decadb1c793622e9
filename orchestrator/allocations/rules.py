"""Proof of cleanup (P6; DESIGN §9), and labels that set fault switches of the sandbox. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_proven(result: dict[str, Any]) -> bool:
    """Whether a release result proves the cleanup: `released`, `wiped` and `leases_released` are all true."""
    return result.get("released") is True and result.get("wiped") is True and result.get("leases_released") is True


PREFIX = "berth.fault/"


def fault_labels(labels: Mapping[str, str]) -> list[str]:
    """The labels that set a fault switch, sorted."""
    return sorted(name for name in labels if name.startswith(PREFIX))


def switches_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Value by fault switch."""
    return {name.removeprefix(PREFIX): labels[name] for name in fault_labels(labels)}
