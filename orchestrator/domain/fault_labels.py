"""Fault switches of one allocation, given as labels `berth.fault/<switch>=<value>` where the deployment allows it. Pure.

Off by default: a tenant of a real deployment cannot throw a switch, neither by creating (the label is refused) nor by
an allocation that was labelled while it was allowed (the label is not read).
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "berth.fault/"


def fault_labels(labels: Mapping[str, str]) -> list[str]:
    """The labels that would throw a switch, in order."""
    return sorted(name for name in labels if name.startswith(PREFIX))


def switches_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Switch and value of each fault label."""
    return {name.removeprefix(PREFIX): labels[name] for name in fault_labels(labels)}
