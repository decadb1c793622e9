"""What the process of one part prints."""

from __future__ import annotations

from node_agent.wire.burn_in import BurnInPart
from node_agent.wire.fields import Closed
from node_agent.wire.topology import Gap


class TrialReport(Closed):
    """One part, and what was left out of it."""

    part: BurnInPart
    gaps: list[Gap]
