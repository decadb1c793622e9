"""`python -m tests.drivers.agent_host node_agent [--end-guests]`: the agent, with a harness's driver and its effects seen.

DRIVER_HARNESS=<module>:<class>   constructs the driver
DRIVER_SEAM=<json>                order_file, trace_file and ignored_ports of `seams.Seam`
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from node_agent.__main__ import end_guests_main, main
from node_agent.drivers.contract import Driver
from node_agent.settings import Settings
from tests.drivers.harness import Harness
from tests.drivers.seams import Seam


def named(where: str) -> Harness:
    """The harness of `<module>:<class>`."""
    module, _, name = where.partition(":")
    harness = getattr(importlib.import_module(module), name)()
    assert isinstance(harness, Harness)
    return harness


def choose(settings: Settings) -> Driver:
    """The harness's driver, seen at each effect."""
    harness = named(os.environ["DRIVER_HARNESS"])
    seam = json.loads(os.environ["DRIVER_SEAM"])
    driver = harness.driver(settings)
    directory = harness.directory(settings.agent_state_dir)
    Seam(directory, Path(seam["order_file"]), Path(seam["trace_file"]), set(seam["ignored_ports"])).install()
    return driver


if __name__ == "__main__":
    sys.exit(end_guests_main(choose) if "--end-guests" in sys.argv else main(choose))
