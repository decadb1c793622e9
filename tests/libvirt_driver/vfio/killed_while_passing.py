"""Takes and gives back a GPU, struck by a seam: `python -m ...killed_while_passing HOST DIRECTORY ORDER TRACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from berth.process.crash_points import reach
from node_agent.crash_points import CrashPoint
from tests.drivers.seams import Seam
from tests.libvirt_driver.vfio.gpus import ALLOCATION, gpus_of
from tests.libvirt_driver.vfio.kernel import GPUS


async def pass_and_return(host: Path, directory: Path) -> None:
    """Two phases: a provision's and a release's part in GPUs."""
    gpus = gpus_of(host, directory)
    reach(CrashPoint.EFFECT_BEFORE_BEGINNING)
    await gpus.take(ALLOCATION, [GPUS[0]])
    reach(CrashPoint.EFFECT_AT_PHASE)
    await gpus.give_back(ALLOCATION)
    reach(CrashPoint.EFFECT_AT_PHASE)
    gpus.taken.forget(ALLOCATION)
    reach(CrashPoint.EFFECT_AFTER_END)


if __name__ == "__main__":
    host, directory, order, trace = map(Path, sys.argv[1:])
    Seam(directory.parent, order, trace, set()).install()
    asyncio.run(pass_and_return(host, directory))
