"""Faults of BMCs and of deploy systems: they are switched by a file of the machine, which the process concerned follows."""

from __future__ import annotations

from tests.campaign.faults.act import Act
from tests.campaign.machines.place import Place, places_of
from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage


def place_of(stage: Stage, name: str) -> Place:
    """The files of a machine of the stage's rack."""
    return next(place for place in places_of(stage.state.path / "rack") if place.name == name)


class BmcFault(Act):
    """A BMC fails by the switch that is named as the fault."""

    def begin(self) -> None:
        """Switch it."""
        place_of(self.stage, self.fault.target).write("faults", {"switch": self.fault.kind.value})

    def end(self) -> None:
        """Let it work."""
        place_of(self.stage, self.fault.target).remove("faults")


class DeployKilled(Act):
    """The deploy system that works on the machine, or the next one that does while the fault lasts, dies."""

    def begin(self) -> None:
        """Wait for it."""
        place_of(self.stage, self.fault.target).write("armed", {"for": "a deploy system"})

    def end(self) -> None:
        """Spare the next one."""
        place_of(self.stage, self.fault.target).remove("armed")


def is_switched(stage: Stage, fault: Fault) -> bool:
    """Whether the BMC itself has noted the switch, as the last one."""
    switches = [line["switch"] for line in place_of(stage, fault.target).seen() if line["what"] == "switch"]
    return switches[-1:] == [fault.kind.value]


def is_armed(stage: Stage, fault: Fault) -> bool:
    """Whether the next deploy system will die."""
    return bool(place_of(stage, fault.target).read("armed"))
