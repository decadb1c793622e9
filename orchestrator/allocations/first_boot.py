"""The first boot of a guest: how a report of its node changes what is known of it. Pure."""

from __future__ import annotations

from node_agent.wire.first_boot import ENDED, FirstBootStatus


def first_boot_after(now: FirstBootStatus | None, reported: FirstBootStatus) -> FirstBootStatus | None:
    """The new status, or None if nothing changes: what has ended ends once, until a rebuild. `now` None: nothing is known yet."""
    return None if reported is now or now not in (None, FirstBootStatus.PENDING) else reported


def is_announced(status: FirstBootStatus) -> bool:
    """Whether the tenant gets an event of it: the first boot has ended, in whichever way."""
    return status in ENDED
