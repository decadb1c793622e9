"""One fault that is carried out on the stage."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage


class Act(ABC):
    """`begin` is called until it succeeds or the fault's time is over, `end` until it succeeds, also where `begin` failed."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        self.stage = stage
        self.fault = fault
        self.observed: list[tuple[str, str]] = []
        """What it saw broken: the check, and a sentence."""

    @abstractmethod
    def begin(self) -> None:
        """Hurt the target. Raises what another fault at that moment causes."""

    @abstractmethod
    def end(self) -> None:
        """Take the cause away, and start what ended by it. Raises what another fault at that moment causes."""
