"""Faults of the link from one process to one server."""

from __future__ import annotations

from collections.abc import Mapping

from tests.campaign.faults.act import Act
from tests.campaign.schedule import FaultKind
from tests.proxy import Mode

MODES: Mapping[FaultKind, Mode] = {
    FaultKind.CUT: Mode.CUT,
    FaultKind.ONE_WAY: Mode.DROP_ANSWERS,
    FaultKind.RESET: Mode.RESET,
    FaultKind.DELAY: Mode.DELAY,
    FaultKind.JITTER: Mode.JITTER,
    FaultKind.LOSS: Mode.LOSS,
    FaultKind.TRICKLE: Mode.TRICKLE,
    FaultKind.STALL: Mode.STALL,
    FaultKind.HALF_CLOSE: Mode.HALF_CLOSE,
}
"""What a link does during a fault."""


class Link(Act):
    """The link behaves as the kind says until the fault is over."""

    def begin(self) -> None:
        """Misbehave."""
        self.stage.links.by_name[self.fault.target].set_mode(MODES[self.fault.kind])

    def end(self) -> None:
        """Pass everything."""
        self.stage.links.by_name[self.fault.target].set_mode(Mode.PASS)


class Vanish(Act):
    """A middlebox forgets today's connections: nothing that is sent on them is acknowledged, for good. New ones work."""

    def begin(self) -> None:
        """Forget them."""
        self.stage.links.by_name[self.fault.target].vanish()

    def end(self) -> None:
        """Nothing: the clients have to end those connections."""
