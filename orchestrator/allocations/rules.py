"""What counts as proof that nothing of a tenant is left on its units (P6; DESIGN §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_proven(result: dict[str, Any]) -> bool:
    """Released, wiped and leases released, each stated as true. How the guest was stopped does not matter."""
    return result.get("released") is True and result.get("wiped") is True and result.get("leases_released") is True


PREFIX = "berth.fault/"


def fault_labels(labels: Mapping[str, str]) -> list[str]:
    """The labels that would throw a switch, in order."""
    return sorted(name for name in labels if name.startswith(PREFIX))


def switches_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Switch and value of each fault label."""
    return {name.removeprefix(PREFIX): labels[name] for name in fault_labels(labels)}
