"""Named places where a test may kill the process: wherever two systems meet (docs/reference/crash-points.md).

The labels are in each package's own `crash_points` module. In a product process nothing is installed, and reaching a
point costs one comparison. No setting installs anything; `tests/testbuild` does.
"""

from __future__ import annotations

from collections.abc import Callable

_installed: Callable[[str], None] | None = None


def install(on_reached: Callable[[str], None] | None) -> None:
    """Call `on_reached` with the label of every point reached from now on; None removes it."""
    global _installed
    _installed = on_reached


def is_installed() -> bool:
    """Return whether a test listens."""
    return _installed is not None


def reach(label: str) -> None:
    """Report that the point `label` is reached. Does nothing unless a test has installed a listener."""
    if _installed is not None:
        _installed(label)
