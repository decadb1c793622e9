"""Parameters: `make test` runs the quick ones, `make test-full` all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


def at_length(values: Iterable[Any], soon: Collection[Any]) -> list[ParameterSet]:
    """Each value as a parameter; those that are not `soon` are marked `full`. Each of `soon` must be a value."""
    given = list(values)
    assert soon, "there must be a quick one"
    assert all(value in given for value in soon), "what runs soon is no value"
    return [pytest.param(value, marks=() if value in soon else pytest.mark.full) for value in given]
