"""What an object waits for (P9); stored with the time since when, and the deadline if there is one. Pure."""

from __future__ import annotations

from enum import StrEnum


class Wait(StrEnum):
    """The actor or condition that ends the wait."""

    WORKER = "worker"
    """A workflow starts."""
    NODE = "node"
    """The node finishes its task; for a reservation with a template, its node is usable again."""
    RETRY = "retry"
    """The backoff before the next attempt ends."""
    TENANT = "tenant"
    """The tenant releases the allocation; there is no deadline."""
    CLEANUP = "cleanup"
    """A workflow starts the cleanup after a failure."""
    FORCE_RELEASE = "force_release"
    """Release attempts are exhausted: the tenant releases again, or an operator forces it."""
    OPERATOR = "operator"
    """Cleanup attempts after a failure are exhausted: an operator forces the release."""
    HOLDER = "holder"
    """The holder confirms, cancels or consumes the hold, or it expires."""
    WINDOW = "window"
    """A confirmed window begins (if it has a template) or ends."""
    UNITS = "units"
    """The previous allocation on these units is proven to be cleaned up."""
