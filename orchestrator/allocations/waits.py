"""What a waiting object can wait for (P9). Stored beside since when, and until when where there is a deadline."""

from __future__ import annotations

from enum import StrEnum


class Wait(StrEnum):
    """The next thing that must happen, named after who does it."""

    WORKER = "worker"
    """A workflow picks it up."""
    NODE = "node"
    """The node finishes its task; of a reservation that was to start by itself, the node can be used again."""
    RETRY = "retry"
    """The pause before the next attempt ends."""
    TENANT = "tenant"
    """The tenant releases it; there is no deadline."""
    CLEANUP = "cleanup"
    """A workflow begins to clean up after a failure."""
    FORCE_RELEASE = "force_release"
    """Release attempts are exhausted: the tenant releases again, or an operator forces it."""
    OPERATOR = "operator"
    """Cleanup attempts after a failure are exhausted: an operator forces the release."""
    HOLDER = "holder"
    """A hold is confirmed, cancelled or consumed by its holder, or expires."""
    WINDOW = "window"
    """A confirmed window begins (if it starts an allocation by itself) or is over."""
    UNITS = "units"
    """The allocation that ran before on these units is proven gone from them."""
