"""An agent whose driver writes down what it learns of other nodes, each time that it tends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from node_agent.__main__ import main
from node_agent.drivers.noop import NoopDriver
from node_agent.settings import Settings
from node_agent.wire.networks import SpannedNetwork


class NotingDriver(NoopDriver):
    """Nothing but notes."""

    def __init__(self, host: str, notes: Path) -> None:
        super().__init__(host)
        self._notes = notes
        self._known: list[SpannedNetwork] = []

    def note_other_nodes(self, networks: Sequence[SpannedNetwork]) -> bool:
        """See `Spanning`."""
        if list(networks) == self._known:
            return False
        self._known = list(networks)
        return True

    async def tend_leases(self) -> list[int]:
        """Write the VNIs down."""
        with self._notes.open("a") as file:
            file.write(f"{[network.vni for network in self._known]}\n")
        return []


def choose(settings: Settings) -> NotingDriver:
    """The driver of this agent."""
    return NotingDriver(settings.agent_advertised_host, settings.agent_state_dir / "notes")


if __name__ == "__main__":
    sys.exit(main(choose))
